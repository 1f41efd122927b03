"""What a workflow tells its steps: by the runner's own variables, and by those that the workflow sets."""

from __future__ import annotations

import os
import secrets
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from perf.ci.github import GitHub
from perf.ci.machines import CELLS, Cell
from perf.commands.output import say
from perf.record import parse_json


@dataclass(frozen=True)
class Context:
    """The variables of one step."""

    variables: Mapping[str, str]
    # What lets the runner take commands from the output again; nobody can guess it.
    _resume: str = field(default_factory=lambda: secrets.token_hex(16), repr=False)

    @classmethod
    def here(cls) -> Context:
        """Return that of this process."""
        return cls(dict(os.environ))

    def stop_commands(self) -> None:
        """Tell the runner that no line from here on is a command of ours, whatever names are in it."""
        if self.get("GITHUB_ACTIONS") == "true":
            say(f"::stop-commands::{self._resume}\n")

    def command(self, lines: Sequence[str]) -> None:
        """Print commands for the runner, which takes these and no others."""
        told = "".join(f"{line}\n" for line in lines)
        if self.get("GITHUB_ACTIONS") == "true":
            say(f"::{self._resume}::\n{told}")
            self.stop_commands()
        else:
            say(told)

    def __getitem__(self, name: str) -> str:
        """Return a variable that has to be set.

        Raises:
            ValueError: it is not; names it.
        """
        found = self.variables.get(name, "")
        if not found:
            msg = f"{name} is not set: a step of a workflow sets it, see .github/workflows"
            raise ValueError(msg)
        return found

    def get(self, name: str, default: str = "") -> str:
        """Return a variable that may be absent."""
        return self.variables.get(name, "") or default

    @property
    def github(self) -> GitHub:
        """The repository that the workflow runs in, with the step's token."""
        api = self.get("GITHUB_API_URL", "https://api.github.com")
        return GitHub(self["GITHUB_REPOSITORY"], self.get("GH_TOKEN"), api)

    @property
    def cells(self) -> list[Cell]:
        """The jobs that were planned."""
        return CELLS.validate_python(parse_json(self["CELLS"]))

    def run_page(self, run: int | str) -> str:
        """Return the address of a workflow run."""
        return f"{self.get('GITHUB_SERVER_URL', 'https://github.com')}/{self['GITHUB_REPOSITORY']}/actions/runs/{run}"

    def output(self, **values: str) -> None:
        """Set outputs of the step; a value with lines in it cannot end early and set others."""
        path = self.get("GITHUB_OUTPUT")
        for name, value in values.items() if path else ():
            end = f"end-{secrets.token_hex(16)}"
            _append(Path(path), f"{name}<<{end}\n{value}\n{end}\n")

    def summary(self, text: str) -> None:
        """Add Markdown to the summary of the step."""
        path = self.get("GITHUB_STEP_SUMMARY")
        if path:
            _append(Path(path), text)


def _append(path: Path, text: str) -> None:
    with path.open("a", encoding="utf-8") as file:
        file.write(text)
