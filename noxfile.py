"""Sessions only: what to install comes from perf/matrix.py.

    nox -s perf-2.14                          measure, judge and report the pinned rfdetr release
    nox -s perf-2.14 -- --rfdetr VALUE        another one: release, local checkout or git URL
    nox -s perf-2.14 -- -k nano --maxfail=1   whatever else follows -- goes to pytest
    nox -s investigate-2.14 -- --out FOLDER   where the time of a training goes, as a report
    nox -s traceml-2.14 -- --out FOLDER       TraceML's answer beside it, in the same folder
    nox -s scoreboard                         which injected faults are caught: docs/scoreboard.md
    nox -s ab-2.14 -- --base 1.11.1 --head .  two of them, their runs interleaved; more goes to rfdetr-perf ab
    nox -s sweep-2.14 -- --budget 20m         which settings train fastest here; more goes to rfdetr-perf sweep
    nox -s epoch-2.14 -- --coco-root DIR      minutes per epoch of COCO 2017; more goes to rfdetr-perf epoch
    nox -s ci -- STEP                         a step of .github/workflows
    nox -s replay -- --select ci              the regressions that rfdetr really had: does the suite see them?

Environments are kept, so that a second run installs nothing that is there already; changed pins still take
effect. ``nox -R -s perf-2.14`` skips installing altogether and measures what is there, whatever --rfdetr says.

RFDETR_PERF_TORCH picks the build of torch: unset, what the package index gives (the plain wheel of PyPI);
``cpu``, ``cu126`` ... one of PyTorch's own builds. uv knows where those are; for pip,
RFDETR_PERF_TORCH_INDEX has to hold the address that PyTorch's install page gives for them.

The suite's exit codes: 0 pass, 1 regressed or failed, 2 bad input, 3 inconclusive or nothing to compare with,
4 improved (the baseline is stale). nox shows the code of the command that failed, and itself exits with 1.
"""

from __future__ import annotations

import argparse
import functools
import os
import re
import sys
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import nox

ROOT = Path(__file__).resolve().parent
# The console script of nox does not look for modules beside the noxfile.
sys.path.insert(0, str(ROOT))

from perf.beside import holds, put_before  # noqa: E402
from perf.matrix import DEFAULT_MINOR, DEFAULT_RFDETR, MATRIX, Pins, pins_for, rfdetr_requirement  # noqa: E402
from perf.replay import needed as needed_releases  # noqa: E402

nox.needs_version = ">=2024.4.15"
nox.options.default_venv_backend = "uv|virtualenv"
nox.options.reuse_venv = "yes"
nox.options.sessions = ["lint", "tests"]

# Its summary's schema is read by perf/traceml.py.
TRACEML = "traceml-ai==0.5.0"
# Tests of minutes each, which would take ``tests`` beyond the quarter of an hour that people wait for.
LONGEST = (
    "ab_session",
    "epoch",
    "fit",
    "inductor",
    "injected_faults",
    "investigation",
    "parity",
    "rank_compiles",
    "sweep_session",
    "torchrun",
)
LONG = [*(f"tests/e2e/test_{name}.py" for name in LONGEST), "tests/unit/test_probe_parity.py"]

GROUPS: dict[str, list[str]] = nox.project.load_toml(ROOT / "pyproject.toml")["dependency-groups"]


def torch_arguments(backend: str, build: str, index: str) -> list[str]:
    """Return what to tell the installer ``backend`` (uv or virtualenv) to get this build of torch.

    Raises:
        ValueError: pip is not told where the build is; says what to do.
    """
    if index:
        return ["--index-url", index]
    if not build:
        return []
    if backend == "uv":
        return ["--torch-backend", build]
    msg = (
        f"RFDETR_PERF_TORCH={build}: pip has to be told where PyTorch keeps these builds. Set "
        "RFDETR_PERF_TORCH_INDEX to the --index-url that PyTorch's install page shows for them, or install uv, "
        "which knows it, or unset RFDETR_PERF_TORCH to use the plain wheel"
    )
    raise ValueError(msg)


class Environment(NamedTuple):
    """An environment to install into: the session's own, or with ``folder`` another one beside it."""

    session: nox.Session
    folder: Path | None = None

    @property
    def location(self) -> Path:
        """Where it lies."""
        return self.folder or Path(self.session.virtualenv.location)

    @property
    def python(self) -> Path:
        """Its interpreter."""
        return self.location / ("Scripts/python.exe" if sys.platform == "win32" else "bin/python")

    def create(self) -> None:
        """Make the environment, unless it is there; nox has made the session's own."""
        if self.folder and not self.python.exists():
            uv = self.session.venv_backend == "uv"
            make = ["uv", "venv", "--python", str(self.session.python)] if uv else ["python", "-m", "venv"]
            self.session.run_install(*make, str(self.folder), silent=True)

    def pip(self, verb: str, *arguments: str) -> None:
        """Install or uninstall."""
        if self.session.venv_backend == "uv":
            command = ["uv", "pip", verb, "--python", str(self.python)]
        else:
            command = [str(self.python), "-m", "pip", verb, *(["--yes"] if verb == "uninstall" else [])]
        self.session.run_install(*command, *arguments, silent=True, external=True)


def install_torch(environment: Environment, pins: Pins) -> None:
    """Install exactly the pinned torch and torchvision, from where RFDETR_PERF_TORCH says."""
    build, index = os.environ.get("RFDETR_PERF_TORCH", ""), os.environ.get("RFDETR_PERF_TORCH_INDEX", "")
    try:
        arguments = torch_arguments(environment.session.venv_backend, build, index)
    except ValueError as error:
        environment.session.error(str(error))
    # Another build of the same release satisfies the pin, so a kept environment has to be told to change it.
    marker = environment.location / "rfdetr-perf-torch-build"
    if marker.exists() and marker.read_text(encoding="utf-8") != build + index:
        arguments.append("--force-reinstall")
    environment.pip("install", *pins.torch_requirements, *arguments)
    if marker.parent.is_dir():  # not yet, where nox only says what it would do
        marker.write_text(build + index, encoding="utf-8")


def install(session: nox.Session, minor: str, rfdetr: str, *others: str, folder: Path | None = None) -> Path:
    """Install the pins of one torch minor, the rfdetr that is asked for, this project and ``others``.

    Returns:
        The interpreter of the environment: the session's own, or that in ``folder``.
    """
    pins = pins_for(minor)
    try:
        requirement = rfdetr_requirement(rfdetr, Path(session.invoked_from))
    except ValueError as error:
        session.error(str(error))
    if pins.known_failure is not None:
        session.warn(f"{pins.known_failure.what} with torch {minor}: {pins.known_failure.reason}")
    environment = Environment(session, folder)
    environment.create()
    install_torch(environment, pins)
    # A checkout and a release can have the same version: an installer would then keep the one that is there.
    environment.pip("uninstall", "rfdetr")
    environment.pip("install", requirement, *pins.requirements, "-e", ".", *others)
    return environment.python


def install_beside(session: nox.Session, release: str) -> Path:
    """Install one rfdetr release, and nothing else, in an environment that has the session's own behind it.

    Returns:
        Its interpreter: torch and all that rfdetr leans on are the session's, whatever the release.
    """
    environment = Environment(session, Path(f"{session.virtualenv.location}-{release}"))
    environment.create()
    if not holds(environment.location, release):
        environment.pip("install", "--no-deps", f"rfdetr=={release}")
    if environment.python.exists():  # not where nox only says what it would do
        try:
            put_before(environment.location, Path(session.virtualenv.location))
        except ValueError as error:
            session.error(f"{error}; remove {environment.location}")
    return environment.python


def parse(arguments: list[str], *options: str) -> tuple[list[str], list[str]]:
    """Split what follows -- into the rfdetr that each of ``options`` asks for and the arguments of what is run."""
    parser = argparse.ArgumentParser(prog="nox -s SESSION --", allow_abbrev=False, add_help=False)
    for option in options:
        parser.add_argument(option, dest=option, default=DEFAULT_RFDETR)
    known, rest = parser.parse_known_args(arguments)
    return [vars(known)[option] for option in options], rest


def perf_session(minor: str) -> Callable[[nox.Session], None]:
    """Return the session that measures, judges and reports with one torch minor."""

    def perf(session: nox.Session) -> None:
        [rfdetr], rest = parse(session.posargs, "--rfdetr")
        install(session, minor, rfdetr)
        session.run("pytest", "tests/suite", *rest, env=variables(minor))

    pins = MATRIX[minor]
    perf.__doc__ = f"Measure and judge rfdetr with torch {pins.torch}, Python {pins.python}{problem(minor)}."
    return perf


def variables(minor: str) -> dict[str, str]:
    """Return the environment variables of whatever measures with one torch minor."""
    return {"RFDETR_PERF_TORCH_MINOR": minor, "PYTHONHASHSEED": "0"}


def problem(minor: str) -> str:
    """Return what is known not to work with a torch minor, as the end of a session's description."""
    known = MATRIX[minor].known_failure
    return f"; {known.what} with it" if known else ""


def ab_session(minor: str) -> Callable[[nox.Session], None]:
    """Return the session that holds one rfdetr against another with one torch minor."""

    def ab(session: nox.Session) -> None:
        (base, head), rest = parse(session.posargs, "--base", "--head")
        differ = any(word.startswith(("--same", "--base-patch", "--head-patch")) for word in rest)
        if base == head and not differ:
            session.error(f"base and head are both rfdetr {base}: give --base or --head, a patch, or --same")
        beside = Path(f"{session.virtualenv.location}-base")
        pythons = [install(session, minor, base, folder=beside), install(session, minor, head)]
        told = ["--base", base, "--base-python", str(pythons[0]), "--head", head, "--head-python", str(pythons[1])]
        session.run("rfdetr-perf", "ab", *told, *rest, env=variables(minor))

    torch = MATRIX[minor].torch
    ab.__doc__ = f"Hold one rfdetr against another with torch {torch}: --base and --head, interleaved{problem(minor)}."
    return ab


# Commands of rfdetr-perf that are a session of each torch minor: what they do, and what else they need.
COMMANDS: dict[str, tuple[str, list[str]]] = {
    "calibrate": ("Measure what A/B sessions can see on this machine", []),
    "sweep": ("Measure which settings train fastest on this machine", []),
    "epoch": ("Train whole epochs on COCO 2017", []),
    "investigate": ("Report where the time of a training goes", []),
    # In an environment of its own: what it brings along must not be in those that measure.
    "traceml": ("Have TraceML measure the training of an investigation", [TRACEML]),
}


def command_session(command: str, minor: str) -> Callable[[nox.Session], None]:
    """Return the session that runs one of :data:`COMMANDS` with one torch minor."""
    told, others = COMMANDS[command]

    def run(session: nox.Session) -> None:
        [rfdetr], rest = parse(session.posargs, "--rfdetr")
        install(session, minor, rfdetr, *others)
        session.run("rfdetr-perf", command, *rest, env=variables(minor))

    run.__doc__ = f"{told} with torch {MATRIX[minor].torch}{problem(minor)}."
    return run


BY_MINOR: dict[str, Callable[[str], Callable[[nox.Session], None]]] = {
    "perf": perf_session,
    "ab": ab_session,
    **{command: functools.partial(command_session, command) for command in COMMANDS},
}


def unknown_minor(arguments: list[str]) -> str | None:
    """Return what is wrong with the torch minors that nox's ``arguments`` ask for, or None.

    nox compares names as numbers where it can: for it, perf-2.1 is perf-2.10, and it would measure that.
    """
    for argument in arguments[: arguments.index("--")] if "--" in arguments else arguments:
        asked = re.fullmatch(rf"(?:-[se]|--sessions?=)?(?:{'|'.join(BY_MINOR)})-(.+)", argument)
        try:
            pins_for(asked[1] if asked else DEFAULT_MINOR)
        except ValueError as error:
            return str(error)
    return None


if (_problem := unknown_minor([*os.environ.get("NOXSESSION", "").split(","), *sys.argv[1:]])) is not None:
    print(_problem, file=sys.stderr)
    sys.exit(2)

for _kind, _session in BY_MINOR.items():
    for _minor, _pins in MATRIX.items():
        nox.session(name=f"{_kind}-{_minor}", python=_pins.python)(_session(_minor))


@nox.session(python=MATRIX[DEFAULT_MINOR].python)
def tests(session: nox.Session) -> None:
    """Run the project's own tests, the real cpu lane among them; what follows -- goes to pytest."""
    install(session, DEFAULT_MINOR, DEFAULT_RFDETR, *GROUPS["test"])
    left_out = [f"--ignore={path}" for path in LONG]
    # Hypothesis' own profile for CI: the same examples each time, and none fails for how long it took.
    chosen = ["--hypothesis-profile=ci", "tests/unit", "tests/e2e", *left_out]
    session.run("pytest", *chosen, *session.posargs, env=variables(DEFAULT_MINOR))


@nox.session(python=MATRIX[DEFAULT_MINOR].python)
def journeys(session: nox.Session) -> None:
    """Run the longest of the project's own tests: whole sessions, fits, sweeps and epochs; more goes to pytest."""
    install(session, DEFAULT_MINOR, DEFAULT_RFDETR, *GROUPS["test"])
    session.run("pytest", *LONG, *session.posargs, env=variables(DEFAULT_MINOR))


@nox.session(python=MATRIX[DEFAULT_MINOR].python)
def releases(session: nox.Session) -> None:
    """Build and step every config with every supported rfdetr release, each fetched from the index; takes minutes."""
    install(session, DEFAULT_MINOR, DEFAULT_RFDETR, "pip")
    session.run("pytest", "tests/releases", *session.posargs, env={"PYTHONHASHSEED": "0"})


@nox.session(python=MATRIX[DEFAULT_MINOR].python)
def replay(session: nox.Session) -> None:
    """Measure regressions that rfdetr's releases really had: --select ci takes ten minutes; what follows -- goes on."""
    try:
        needed = needed_releases(session.posargs)
    except ValueError as error:
        session.error(str(error))
    install(session, DEFAULT_MINOR, DEFAULT_RFDETR)
    pythons = [f"--python={release}={install_beside(session, release)}" for release in needed]
    session.run("rfdetr-perf", "replay", *pythons, *session.posargs, env=variables(DEFAULT_MINOR))


@nox.session(python=MATRIX[DEFAULT_MINOR].python)
def scoreboard(session: nox.Session) -> None:
    """Inject faults into rfdetr and see which are caught; -- --select NAME for one, --traceml to ask TraceML too."""
    told = [word for word in session.posargs if word != "--traceml"]
    if len(told) < len(session.posargs):
        # In an environment of its own: what it brings along must not be in that which measures.
        beside = Path(f"{session.virtualenv.location}-traceml")
        python = install(session, DEFAULT_MINOR, DEFAULT_RFDETR, TRACEML, folder=beside)
        told += ["--traceml-python", str(python)]
    install(session, DEFAULT_MINOR, DEFAULT_RFDETR)
    session.run("rfdetr-perf", "scoreboard", *told, env=variables(DEFAULT_MINOR))


@nox.session(python=MATRIX[DEFAULT_MINOR].python)
def lint(session: nox.Session) -> None:
    """Check format, lint, types, workflows and the documents that are made; needs neither torch nor rfdetr."""
    session.install("-e", ".", *GROUPS["lint"], *GROUPS["test"])
    session.run("ruff", "format", "--check")
    session.run("ruff", "check")
    session.run("mypy")
    session.run("rfdetr-perf", "matrix", "--check")
    session.run("rfdetr-perf", "replay", "--check")
    session.run("rfdetr-perf", "scoreboard", "--check")
    # Of shell there is nothing to check: every run block is one command. Nothing is asked of the network.
    session.run("actionlint", "-shellcheck=", "-pyflakes=")
    session.run("zizmor", "--offline", "--no-progress", "--quiet", "--persona=pedantic", ".github")


@nox.session(python=MATRIX[DEFAULT_MINOR].python)
def ci(session: nox.Session) -> None:
    """Run a step of a workflow, rfdetr-perf ci STEP; needs neither torch nor rfdetr."""
    session.install("-e", ".[trend]", "nox")
    session.run("rfdetr-perf", "ci", *session.posargs)
