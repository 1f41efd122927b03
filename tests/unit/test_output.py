from __future__ import annotations

import subprocess
import sys

import pytest

from perf.commands.output import resumable
from perf.verdicts import EXIT_INTERRUPTED

BOTH = """
from perf.commands.output import say, say_aside
for number in range(3000):
    say(f"{number}\\n")
    say_aside(str(number))
raise SystemExit(7)
"""


def test_a_reader_that_stops_reading_changes_neither_the_work_nor_the_exit_code() -> None:
    process = subprocess.Popen([sys.executable, "-c", BOTH], stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    assert process.stdout
    process.stdout.readline()
    process.stdout.close()

    assert process.wait() == 7


@pytest.mark.parametrize(
    ("raised", "told"),
    [
        (KeyboardInterrupt(), "interrupted; the same command with --resume s goes on\n"),
        (KeyboardInterrupt("SIGHUP"), "interrupted by SIGHUP; the same command with --resume s goes on\n"),
    ],
)
def test_an_interrupt_that_nobody_typed_is_named(
    raised: KeyboardInterrupt, told: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as end, resumable("s"):
        raise raised

    assert end.value.code == EXIT_INTERRUPTED
    assert capsys.readouterr().err == told
