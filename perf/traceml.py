"""What TraceML says of the same workload, beside what the fit probe says of it. Pure: reads its final_summary.json.

The package is traceml-ai; written against 0.5.0, whose summary has schema 1.9.
"""

from __future__ import annotations

import statistics
from pathlib import Path
from typing import Any, NamedTuple

from pydantic import BaseModel, ConfigDict, Field

from perf.record import Part, explain, parse_json, read_model

SUMMARY = "final_summary.json"
# What this suite's own clock saw of the very steps that TraceML measured.
OURS = "same_steps.json"
# Agreement asked for: the two read other clocks at other places, and a process more runs beside one of them.
TOLERANCE = 0.05
# A wait that is a small part of a step agrees where a hundredth of the step is all that it is apart.
OF_A_STEP = 0.01
# Written against TraceML 0.5.0: instrumentation/patches/h2d_auto_timer_patch.py, integrations/lightning.py.
_COPIES = (
    "TraceML's is the GPU's time from before to after each tensor's copy, in sum (CUDA events; CUDA only). Ours is the "
    "host's time in all of Lightning's batch_to_device: unpacking the targets, and under TraceML its hooks too, "
    "which open its step there and set two events a tensor"
)


class SameSteps(BaseModel):
    """The updates that TraceML measured, by the clock of the fit probe: the mean in ms, and its phases."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    case_id: str
    updates: int = Field(ge=1)
    warmup: int = Field(ge=0)
    step: float = Field(gt=0)
    parts: list[Part]
    traceml: str
    command: str

    def part(self, *names: str) -> float:
        """Return the ms of these phases together; of those that there are not, none."""
        return sum(part.value for part in self.parts if part.name in names)


class Summary(NamedTuple):
    """Means in ms over the steps of TraceML's window; None is what it did not measure. ``clock``: cpu or gpu."""

    clock: str
    steps: int
    diagnosis: str
    values: dict[str, float | None]


class Row(NamedTuple):
    """One quantity of both: ms by TraceML and by the fit probe, whether they agree (None: not asked), what differs.

    ``phases``: those of the fit probe that ``ours`` is the sum of; none for the whole step.
    """

    name: str
    theirs: float | None
    ours: float
    agrees: bool | None
    boundary: str
    phases: tuple[str, ...] = ()

    @property
    def by_share(self) -> bool:
        """Whether it agrees only because it is less than :data:`OF_A_STEP` of a step that it is apart."""
        return bool(self.agrees) and self.theirs is not None and abs(self.theirs - self.ours) > TOLERANCE * self.ours


def read_summary(path: Path) -> Summary:
    """Read a final_summary.json.

    Raises:
        ValueError: it cannot be read, or has no step times; names the path.
    """
    try:
        document: Any = parse_json(path.read_text(encoding="utf-8"))
        whole = document["step_time"]["global"]
        average = {name: None if value is None else float(value) for name, value in whole["average"].items()}
        window = whole["window"]
        diagnosis = str(document["primary_diagnosis"]["status"])
        return Summary(str(window["diagnosis_clock"]), int(window["steps_analyzed"]), diagnosis, average)
    except (OSError, ValueError) as error:
        raise ValueError(explain(path, error)) from error
    except (KeyError, TypeError, AttributeError) as error:
        msg = f"{path}: not a summary of TraceML 0.5 with step times ({type(error).__name__}: {error}); run it again"
        raise ValueError(msg) from error


def read_same_steps(path: Path) -> SameSteps:
    """Read what this suite's clock saw.

    Raises:
        ValueError: it cannot be read; names the path.
    """
    return read_model(path, SameSteps)


def compared(theirs: Summary, ours: SameSteps) -> list[Row]:
    """Return both decompositions side by side: step and input wait held against each other, the rest for the eye."""
    step = ours.step
    outside = "TraceML's step ends where its callback's on_train_batch_end comes; what comes after it is in ours"
    fetch = "TraceML times the loader's __next__, ours all of Lightning's fetching"
    value = theirs.values.get
    return [
        _held(Row("step", value("step_time_cpu_ms"), step, None, outside), TOLERANCE * step),
        _held(
            _row("input wait", value("dataloader_fetch_cpu_ms"), ours, fetch, "input_wait"),
            max(TOLERANCE * ours.part("input_wait"), OF_A_STEP * step),
        ),
        _row("host to device", value("h2d_ms"), ours, _COPIES, "host_to_device"),
        _row("forward", value("forward_ms"), ours, "the model alone, in both", "forward"),
        _row("backward", value("backward_ms"), ours, "", "backward"),
        _row(
            "optimizer",
            value("optimizer_ms"),
            ours,
            "TraceML's ends at its on_train_batch_end, so that EMA is in it; ours is the sum of both",
            *("optimizer", "ema"),
        ),
        _row(
            "residual",
            value("residual_ms"),
            ours,
            "TraceML has no criterion, and what of moving a batch is no copy lies here; ours is criterion, matching, "
            "logging and other",
            *("criterion", "matching", "logging", "other"),
        ),
    ]


def _row(name: str, theirs: float | None, ours: SameSteps, boundary: str, *phases: str) -> Row:
    return Row(name, theirs, ours.part(*phases), None, boundary, phases)


def _held(row: Row, apart: float) -> Row:
    """Return ``row`` with whether both are within ``apart`` ms, and no boundary where they are."""
    if row.theirs is None:
        return row._replace(boundary="not measured by TraceML")
    agrees = abs(row.theirs - row.ours) <= apart
    return row._replace(agrees=agrees, boundary="" if agrees else row.boundary)


def mean_parts(each: list[dict[str, float]]) -> list[Part]:
    """Return the mean of each phase in ms from the seconds of every update."""
    names = dict.fromkeys(name for seconds in each for name in seconds)
    return [Part(name=name, value=1e3 * statistics.fmean(one.get(name, 0.0) for one in each)) for name in names]
