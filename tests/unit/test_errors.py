from __future__ import annotations

import traceback

import pytest

from perf.errors import error_line

ADVICE = """\
Traceback (most recent call last):
  File "/venv/lib/python3.11/site-packages/torch/_dynamo/x.py", line 1, in f
    raise ValueError
torch._dynamo.exc.Unsupported: call_method on a lock

from user code:
   File "/venv/lib/python3.11/site-packages/rfdetr/a.py", line 3, in forward
Set TORCHDYNAMO_VERBOSE=1 for the internal stack trace
"""


@pytest.mark.parametrize(
    ("error", "line"),
    [
        (ADVICE, "torch._dynamo.exc.Unsupported: call_method on a lock"),
        ("no end after 5 s (--run-timeout); stopped", "no end after 5 s (--run-timeout); stopped"),
        ("Traceback (most recent call last):\n  a\nKeyboardInterrupt\nno end after 5 s; x", "no end after 5 s; x"),
        ("a\nkilled by SIGKILL", "killed by SIGKILL"),
        (None, "ended in mid-run"),
        (" \n", "ended in mid-run"),
        ("ImportError: x (/venv/lib/python3.11/site-packages/transformers/__init__.py)",
         "ImportError: x (transformers/__init__.py)"),
    ],
)  # fmt: skip
def test_the_line_says_what_it_was(error: str | None, line: str) -> None:
    assert error_line(error) == line


def test_of_a_chain_the_last_exception_counts() -> None:
    def fail() -> None:
        try:
            int("x")
        except ValueError as error:
            msg = "no loss"
            raise RuntimeError(msg) from error

    try:
        fail()
    except RuntimeError:
        assert error_line(traceback.format_exc()) == "RuntimeError: no loss"
