"""The ranks of one run on this machine: a process a device, by torch's elastic launcher, which torchrun is made of.

Run as ``python -m perf.ranks RANKS RECORD ARGUMENT ...``. A rank that dies ends the others, and is named in the record.
"""

from __future__ import annotations

import signal
import sys
import tempfile
import uuid
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, NamedTuple

from perf.child import end_with_parent
from perf.errors import error_line
from perf.record import Record, read_record, write_record
from perf.run_order import rank_stem
from perf.verdicts import EXIT_INTERRUPTED

# The launcher looks so often whether all ranks live.
_POLL_SECONDS = 0.2


class Death(NamedTuple):
    """How a rank ended: killed by the signal of that number where ``exit_code`` is below 0; ``second`` is when."""

    rank: int
    exit_code: int
    second: int = 0


def main(arguments: list[str] = sys.argv[1:]) -> int:
    """Start the ranks, wait for them, and return 0 where all of them ended well."""
    ranks, record, *child = arguments
    # A shell starts background jobs with SIGINT ignored, and what it starts would inherit that.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    end_with_parent()
    from torch.distributed.elastic.multiprocessing import SignalException
    from torch.distributed.elastic.multiprocessing.errors import ChildFailedError

    try:
        _launch(int(ranks), child)
    except ChildFailedError as error:
        told = blame(deaths(error.failures), int(ranks), Path(record))
        print(told, file=sys.stderr)
        return 1
    except (SignalException, KeyboardInterrupt):
        return EXIT_INTERRUPTED
    return 0


def _launch(ranks: int, child: list[str]) -> None:
    from torch.distributed.elastic.multiprocessing import DefaultLogsSpecs
    from torch.distributed.launcher.api import LaunchConfig, elastic_launch

    with tempfile.TemporaryDirectory() as logs:  # the launcher's own, which it would leave behind
        config = _config(LaunchConfig, ranks, DefaultLogsSpecs(log_dir=logs))
        elastic_launch(config, sys.executable)("-m", "perf.child", *child)


def _config(make: Any, ranks: int, logs: Any) -> Any:
    return make(
        min_nodes=1,
        max_nodes=1,
        nproc_per_node=ranks,
        rdzv_backend="c10d",
        rdzv_endpoint="localhost:0",  # any port that is free, so that two sessions do not meet
        run_id=str(uuid.uuid4()),
        local_addr="localhost",  # else it looks itself up by name, which a machine without a network has not
        max_restarts=0,
        monitor_interval=_POLL_SECONDS,
        logs_specs=logs,
    )


def deaths(failures: Mapping[int, Any]) -> list[Death]:
    """Return how each rank of the launcher's ``failures`` ended, first the one that ended first."""
    ordered = sorted(failures.items(), key=lambda item: item[1].timestamp)
    return [Death(rank, failure.exitcode, failure.timestamp) for rank, failure in ordered]


def blame(ended: list[Death], ranks: int, path: Path) -> str:
    """Return which rank failed first and how, and say so in the record at ``path``, where there is one.

    A rank that a signal killed could not raise; else it is the one whose own record failed first: with a peer gone the
    others raise too.
    """
    records = _rank_records(path, ranks)
    if killed := _killed(ended):
        told = f"rank {killed.rank} of {ranks} was killed by {signal.Signals(-killed.exit_code).name}"
    else:
        failed = [(record.finished or _NEVER, rank) for rank, record in records.items() if record.status == "failed"]
        first = min(failed)[1] if failed else ended[0].rank
        why = error_line(records[first].error) if failed else f"exit code {ended[0].exit_code}"
        told = f"rank {first} of {ranks}: {why}"
    if 0 in records:
        _tell(records[0], path, told)
    return told


def _killed(ended: list[Death]) -> Death | None:
    """Return the rank that was killed before any other ended; those that the launcher then ended are no cause.

    It ends them with SIGTERM at once, and with SIGKILL half a minute later.
    """
    first = ended[0]
    together = [death for death in ended if death.second == first.second and death.exit_code < 0]
    own = (death for death in together if death == first or death.exit_code != -signal.SIGTERM)
    return next(own, None)


_NEVER = datetime.max.replace(tzinfo=UTC)


def _rank_records(path: Path, ranks: int) -> dict[int, Record]:
    stem = path.with_name(path.name.partition(".")[0])
    found = {}
    for rank in range(ranks):
        file = rank_stem(stem, rank).with_suffix(".rank.json") if rank else path
        if file.is_file():
            found[rank] = read_record(file)
    return found


def _tell(record: Record, path: Path, told: str) -> None:
    if record.error:
        record.notes.append(f"rank 0 ended so: {error_line(record.error)}")
    record.error, record.status = told, "failed"
    write_record(path, record)


if __name__ == "__main__":
    sys.exit(main())
