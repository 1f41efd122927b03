from __future__ import annotations

import logging
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
import torch._dynamo
from factories import CPU_COMPILED, CPU_EAGER, a_record, a_signal, proof
from hypothesis import given
from hypothesis import strategies as st
from torch._logging._internal import log_state

from perf import evidence
from perf.evidence import Evidence, collecting, is_sound, left_behind, links, operations, read_trace, trace_environment
from perf.probes import compilation
from perf.record import Record, read_record, write_record

ROOT = Path(__file__).resolve().parents[2]
pytestmark = pytest.mark.filterwarnings("default")

# What a run does, as far as evidence goes; argv: the stem, and how the compilation ends.
RUN = """
import sys
from pathlib import Path
import torch
from factories import CPU_COMPILED, a_record
from perf.evidence import Evidence, collecting
from perf.probes import compilation
from perf.record import write_record

class Model(torch.nn.Module):
    def forward(self, x):
        y = x.relu() + 1
        torch._dynamo.graph_break()
        return torch.cat([y, y])

def refusing(graph, inputs):
    raise ValueError("refused")

stem, how = Path(sys.argv[1]), sys.argv[2]
torch._dynamo.config.suppress_errors = how == "fall back"
compilation.reset()
record = a_record(case=CPU_COMPILED)
model = torch.compile(Model(), backend="eager" if how == "compile" else refusing, dynamic=False)
try:
    with collecting(Evidence(stem, record)) as found:
        for rows in (2, 3):
            model(torch.ones(rows, 4))
        record.signals += compilation.signals(model)
        found.take("the training steps")
finally:
    write_record(stem.with_suffix(".record.json"), record)
"""


def run(stem: Path, how: str, **variables: str) -> subprocess.CompletedProcess[str]:
    kept = {name: value for name, value in os.environ.items() if not name.startswith("TORCH_")}
    paths = {"PYTHONPATH": f"{ROOT}{os.pathsep}{ROOT / 'tests' / 'unit'}", "OMP_NUM_THREADS": "1"}
    return subprocess.run(
        [sys.executable, "-c", RUN, str(stem), how],
        env={**kept, **paths, **trace_environment(stem, compiled=True), **variables},
        capture_output=True,
        text=True,
        check=False,
    )


def recorded(stem: Path) -> Record:
    return read_record(stem.with_suffix(".record.json"))


@pytest.fixture(scope="module")
def sound(tmp_path_factory: pytest.TempPathFactory) -> Path:
    stem = tmp_path_factory.mktemp("sound") / "run-0"
    done = run(stem, "compile")
    assert (done.returncode, done.stdout) == (0, "")
    assert "graph_breaks" not in done.stderr
    return stem


def test_a_sound_run_leaves_an_explanation_and_a_log_and_no_trace(sound: Path) -> None:
    assert recorded(sound).evidence == ["run-0.explain.txt", "run-0.recompiles.log"] == left_behind(sound)
    assert recorded(sound).notes == []


def test_the_explanation_has_what_explain_has_and_says_whose_it_is(sound: Path) -> None:
    text = evidence.explain_path(sound).read_text()
    assert "torch._dynamo.explain(), which was not called" in text
    lines = text.splitlines()
    for line in ("# the training steps", "Graph Count: 4", "Graph Break Count: 2", "Op Count: 6", "Frames: 4"):
        assert line in lines
    at = lines.index("Ops per Graph:")
    assert [line.strip() for line in lines[at + 1 : at + 6]] == ["Ops 1:", ".relu", "add", "Ops 2:", "torch.cat"]
    assert "    User Stack:" in lines
    assert "Break Reasons:" in lines
    assert any("TENSOR_MATCH: check_tensor(L['x']" in line for line in lines)
    assert "Compile Times: TorchDynamo compilation metrics:" in lines


def test_the_log_names_breaks_and_every_guard_that_failed(sound: Path) -> None:
    text = evidence.log_path(sound).read_text()
    assert "Graph break in user code at <string>:" in text.replace('File "<string>"', "<string>")
    assert "[__recompiles_verbose] Recompiling function forward" in text
    assert "size mismatch at index 0. expected 2, actual 3" in text


@pytest.fixture(scope="module")
def raised(tmp_path_factory: pytest.TempPathFactory) -> Path:
    stem = tmp_path_factory.mktemp("raised") / "run-0"
    done = run(stem, "raise")
    assert done.returncode == 1
    assert "ValueError: refused" in done.stderr
    return stem


def test_a_compile_that_raises_leaves_its_breaks_its_frames_and_the_trace(raised: Path) -> None:
    assert recorded(raised).evidence == ["run-0.explain.txt", "run-0.recompiles.log", "run-0.trace/"]
    text = evidence.explain_path(raised).read_text()
    assert "# until it failed" in text
    assert "Graph Break Count: 1" in text
    assert "failed: BackendCompilerFailed: backend='refusing' raised:\nValueError: refused" in text
    assert "    .relu" in text.splitlines()
    assert "Graph break" in evidence.log_path(raised).read_text()


def test_the_trace_is_what_tlparse_reads(raised: Path, tmp_path: Path) -> None:
    [trace] = evidence.trace_path(raised).glob("*.log")
    tlparse = Path(sys.executable).with_name("tlparse")
    if not tlparse.exists():
        pytest.skip("tlparse is not installed here: pip install tlparse")
    command = [str(tlparse), str(trace), "-o", str(tmp_path / "out"), "--no-browser"]
    assert subprocess.run(command, check=False).returncode == 0
    assert "ValueError: refused" in (tmp_path / "out" / "failures_and_restarts.html").read_text()


def test_a_run_that_fell_back_keeps_its_trace(tmp_path: Path) -> None:
    assert run(tmp_path / "run-0", "fall back").returncode == 0
    assert recorded(tmp_path / "run-0").evidence[-1] == "run-0.trace/"


def test_a_trace_is_kept_on_request(tmp_path: Path) -> None:
    assert run(tmp_path / "run-0", "compile", RFDETR_PERF_KEEP_TRACE="1").returncode == 0
    assert recorded(tmp_path / "run-0").evidence[-1] == "run-0.trace/"


def test_what_the_user_asked_torch_to_log_is_still_printed(tmp_path: Path) -> None:
    done = run(tmp_path / "run-0", "compile", TORCH_LOGS="graph_breaks")
    assert "[__graph_breaks]" in done.stderr
    assert "[__recompiles" not in done.stderr
    assert "[__graph_breaks]" in evidence.log_path(tmp_path / "run-0").read_text()


# In this process, which has no trace.


@pytest.fixture(autouse=True)
def _clean() -> Iterator[None]:
    compilation.reset()
    yield
    compilation.reset()


def scaled(x: Any, k: int) -> Any:
    return x * k


def compile_and_run(times: int = 2) -> None:
    function = torch.compile(scaled, backend="eager", dynamic=False)
    for k in range(2, 2 + times):
        function(torch.ones(3), k)


def counted() -> list[Any]:
    compilation.reset()
    compile_and_run(4)
    return [*compilation.signals(None)]


def test_collecting_changes_no_count_and_no_name(tmp_path: Path) -> None:
    plain = counted()
    with collecting(Evidence(tmp_path / "run-0", a_record(case=CPU_COMPILED))):
        assert counted() == plain


def settings() -> list[Any]:
    loggers = [logging.getLogger(name) for name in sorted(logging.root.manager.loggerDict) if "torch" in name]
    return [sorted(log_state.artifact_names), *((log.level, log.propagate, log.handlers[:]) for log in loggers)]


@pytest.mark.parametrize("fails", [False, True])
def test_torchs_loggers_are_left_as_they_were(tmp_path: Path, fails: bool) -> None:
    compile_and_run()
    before = settings()
    try:
        with collecting(Evidence(tmp_path / "run-0", a_record(case=CPU_COMPILED))):
            assert settings() != before
            if fails:
                raise KeyboardInterrupt
    except KeyboardInterrupt:
        assert fails
    assert settings() == before


def test_after_taking_nothing_more_is_logged_until_resumed(tmp_path: Path) -> None:
    stem = tmp_path / "run-0"
    with collecting(Evidence(stem, a_record(case=CPU_COMPILED))) as found:
        compile_and_run()
        found.take("training")
        size = evidence.log_path(stem).stat().st_size
        compile_and_run(3)
        assert evidence.log_path(stem).stat().st_size == size > 0
        compilation.reset()
        found.resume()
        compile_and_run(3)
        found.take("validation")
        assert evidence.log_path(stem).stat().st_size > size
    text = evidence.explain_path(stem).read_text()
    assert text.index("# training\n") < text.index("Frames: 2") < text.index("# validation\n") < text.index("Frames: 3")


def test_without_a_trace_the_explanation_says_what_is_missing(tmp_path: Path) -> None:
    record = a_record(case=CPU_COMPILED)
    with collecting(Evidence(tmp_path / "run-0", record)):
        compile_and_run()
    assert "There is no structured trace" in evidence.explain_path(tmp_path / "run-0").read_text()
    assert (record.evidence, record.notes) == (["run-0.explain.txt", "run-0.recompiles.log"], [])


def test_an_eager_case_leaves_nothing(tmp_path: Path) -> None:
    record = a_record(case=CPU_EAGER)
    with collecting(Evidence(tmp_path / "run-0", record)) as found:
        found.take("nothing")
        found.resume()
    assert (record.evidence, list(tmp_path.iterdir())) == ([], [])
    assert trace_environment(tmp_path / "run-0", compiled=False) == {}


def test_what_fails_in_collecting_is_a_note_and_nothing_else(tmp_path: Path) -> None:
    record = a_record(case=CPU_COMPILED)
    with collecting(Evidence(tmp_path / "no such folder" / "run-0", record)) as found:
        compile_and_run()
        found.take("training")
    assert record.evidence == []
    assert [note.partition(": FileNotFoundError")[0] for note in record.notes] == [
        "evidence: no log of recompiles",
        "evidence: no explanation (training)",
    ]


def test_an_error_of_the_run_is_the_one_that_is_raised(tmp_path: Path) -> None:
    with (
        pytest.raises(ZeroDivisionError),
        collecting(Evidence(tmp_path / "no such folder" / "run-0", a_record(case=CPU_COMPILED))),
    ):
        raise ZeroDivisionError


@pytest.mark.parametrize(
    ("signals", "sound"),
    [
        (proof(), True),
        (proof(failed=1), False),
        (proof(model_frames=0), False),
        ([*proof(), a_signal("eval_frames_failed", 1)], False),
        ([*proof(), a_signal("eval_frames_failed", 0)], True),
        ([], False),
    ],
)
def test_only_what_is_proven_is_sound(signals: list[Any], sound: bool) -> None:
    assert is_sound(a_record(signals, CPU_COMPILED)) is sound


def test_the_trace_of_an_earlier_run_is_cleared(tmp_path: Path) -> None:
    folder = evidence.trace_path(tmp_path / "run-0")
    folder.mkdir()
    (folder / "old.log").touch()
    assert trace_environment(tmp_path / "run-0", compiled=True) == {"TORCH_TRACE": str(folder)}
    assert not folder.exists()


@pytest.mark.parametrize(("name", "other"), [("s1", "s2"), ("ab-1/base", "ab-2/base")])
def test_the_links_lead_to_the_files_of_the_right_session(tmp_path: Path, name: str, other: str) -> None:
    record = a_record(case=CPU_COMPILED, evidence=["run-0.explain.txt"], session=name)
    for session in (name, other):
        path = tmp_path / session / record.case_id / "run-0.record.json"
        write_record(path, record.model_copy(update={"session": session}))
    home = tmp_path / name / record.case_id
    assert links([record], tmp_path) == [f"evidence: {home / 'run-0.explain.txt'}"]
    assert links([record], home / "run-0.record.json") == [f"evidence: {home / 'run-0.explain.txt'}"]
    assert links([a_record()], tmp_path) == []
    assert links([record], tmp_path / "nowhere") == []


CODE = """
class GraphModule(torch.nn.Module):
    def forward(self, L_x_: "f32[2, 3]"):
        l_x_ = L_x_

        # File: m.py:1 in f, code: return x.relu()
        relu: "f32[2, 3]" = l_x_.relu();  l_x_ = None
        y: "f32[2, 3]" = relu + 1;  relu = None
        z = y[(slice(None), 0)];  y = None
        w = torch._C._nn.linear(z, z);  z = None
        v = self.L__self___l(-w)
        return (v,)
"""


def test_the_operations_of_a_graph_are_read_from_its_code() -> None:
    names = [".relu", "add", "getitem", "torch._C._nn.linear", "self.L__self___l"]
    assert operations(CODE) == names
    assert operations(f"{CODE}  (") == []


@given(st.binary())
def test_any_bytes_are_no_trace_and_no_error(content: bytes) -> None:
    assert [*evidence._entries_of(content.splitlines(keepends=True))] == []


def test_a_trace_is_read_from_where_it_was_left(tmp_path: Path) -> None:
    path = tmp_path / "trace.log"
    entry = 'V1129 1 2 torch/x.py:3] {"dynamo_output_graph": {}, "frame_id": 0}\n'
    body = "".join(f"\t{line}\n" for line in CODE.splitlines())
    guards = 'V1129 1 2 torch/x.py:3] {"dynamo_cpp_guards_str": {}}\n\t| +- GuardManager: x\n\t| | +- NAME: a == b\n'
    path.write_text(f"{entry}{body}V1 broken] {{\n\tlost\n{guards}")
    seen = read_trace(tmp_path, {})
    assert (seen.found, len(seen.graphs), seen.guards) == (True, 1, ["NAME: a == b"])
    assert read_trace(tmp_path, {path: len(entry) + len(body)}).graphs == []
    assert not read_trace(tmp_path / "none", {}).found


def test_evidence_is_made_without_torch() -> None:
    assert Evidence(Path("run-0"), a_record(case=CPU_COMPILED)).wanted
