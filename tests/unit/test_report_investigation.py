from __future__ import annotations

import re
import subprocess
import sys
from html.parser import HTMLParser
from pathlib import Path

import pytest
from factories import a_signal
from investigated import (
    COMPILED,
    FIT,
    INPUT,
    MAP,
    STEP,
    a_folder,
    a_run,
    fit_signals,
    input_signals,
    step_signals,
    the_records,
    traceml_files,
)

from perf.case import Case
from perf.cli import main
from perf.gpus import GpuState
from perf.investigation import TRACEML
from perf.record import Part, Record, Signal
from perf.report.investigation import write_report

EVIL = "</script><img src=x onerror=alert(1)> **b** `c` | @you #12 [a](http://x)"
MOST_BYTES = 3_000_000


def reports(folder: Path) -> tuple[str, str]:
    md, html = (path.read_text(encoding="utf-8") for path in write_report(folder))
    return md, html


@pytest.fixture
def whole(tmp_path: Path) -> tuple[str, str]:
    return reports(a_folder(tmp_path, the_records()))


def test_the_diagnosis_comes_first_with_its_evidence(whole: tuple[str, str]) -> None:
    lines = whole[0].splitlines()

    assert lines[0] == "# Where a training step goes: nano, batch size 4, NVIDIA H200"
    assert lines[2] == (
        "**Host-bound: the host is at work for 94.6 % of a step or more, waiting for the GPU for 4.95 % at most, and "
        "the GPU is busy for 11.9 %: at most 8.2x from removing all host time, as measured here.**"
    )
    assert lines[4].startswith("- GPU busy: 11.9 % (11.8 % to 12 %, 3 runs) of a step")


@pytest.mark.parametrize(
    "row",
    [
        "| torch | `2.14.1+cpu, CUDA 13.0` |",
        "| GPU | `NVIDIA H200, 1 of 1, 150.0 GB, power limit 700 W` |",
        "| driver | `580.159.04` |",
        "| batch size | 4 |",
        "| precision | `auto`: `bf16-mixed` |",
        "| processes | one, no DDP |",
        "| flags other than rfdetr's defaults | `batch_size=4` |",
    ],
)
def test_what_a_posted_result_must_state_is_there(whole: tuple[str, str], row: str) -> None:
    assert row in whole[0].splitlines()


@pytest.mark.parametrize(
    "row",
    [
        # Medians of three runs and their range; the swatch's colour is HTML's alone.
        "| `forward` | 40.40 ms (40.00 to 40.80 ms, n=3) | 40 % | 4.000 ms (n=3, all alike) "
        "| 36.00 ms (n=3, all alike) | 1500 (n=3, all alike) |",
        "| `optimizer clip` | `rfdetr/b.py:2` | 20 (n=3, all alike) | 1.000 ms (n=3, all alike) |",
        "| photographs, BMP, large (`getitem_bmp_large`) | 33.00 ms (n=3, all alike) | 30.00 ms, 91 % "
        "| 2.000 ms, 6.1 % | 1.000 ms, 3 % |",
        "| 2 workers | 320 samples/s (n=3, all alike) | no |",
        "| 0 workers | 150 samples/s (n=3, all alike) "
        "| in every step: the loop loads by itself, 26.67 ms for its 4 samples |",
        "| `gpu_busy` | 16.65 ms (n=3, all alike) | 16.65 ms (n=3, all alike) |",
        "| validation: `scoring` | 1.000 s (n=3, all alike) |",
    ],
)
def test_every_table_has_its_numbers(whole: tuple[str, str], row: str) -> None:
    assert row in whole[0].splitlines()


def test_what_is_not_measured_is_said_in_its_place_and_at_the_end(whole: tuple[str, str]) -> None:
    why = "`augment_gpu not measured: ValueError: no kornia`"

    assert whole[0].count(why) == 2
    assert f"augmentation_backend='gpu': not measured: {why}" in whole[0].replace("\\_", "_")
    assert "- TraceML beside it: `it was not run here: nox -s traceml-2.14 -- --out with this folder`" in whole[0]


def test_the_page_needs_nothing_but_itself(whole: tuple[str, str]) -> None:
    page = whole[1]

    assert len(page.encode()) < MOST_BYTES
    assert not re.search(r"<script|src=|@import|url\(|<link", page)
    assert page.count("<svg") == 4
    assert "prefers-color-scheme: dark" in page
    assert 'name="viewport"' in page


def test_a_report_is_the_same_every_time(tmp_path: Path) -> None:
    folder = a_folder(tmp_path, the_records())

    assert reports(folder) == reports(folder)


def test_one_run_is_no_spread(tmp_path: Path) -> None:
    md, _ = reports(a_folder(tmp_path, the_records(runs=1), runs=1))

    assert "| 40.00 ms (n=1) |" in md
    assert "one run a case" in md


def test_nothing_measured_is_a_report_without_a_number(tmp_path: Path) -> None:
    md, _ = reports(a_folder(tmp_path, []))

    assert "**Unknown: no run of the training loop finished.**" in md
    assert "phases of an update: not measured: `nano-b4-fit was not run`" in md
    assert not re.search(r"\d ms", md)


def test_a_run_that_failed_is_told_and_the_others_stand(tmp_path: Path) -> None:
    records = [record for record in the_records() if record.case != FIT]
    error = "Traceback (most recent call last):\n  x\nValueError: rfdetr rejects the data set\n"
    failed = a_run(FIT, [], 0, status="failed", error=error)
    md, _ = reports(a_folder(tmp_path, [failed, *records], cases=[FIT.id, COMPILED.id, INPUT.id]))

    assert "phases of an update: not measured: `no run of nano-b4-fit finished; run 0: ValueError: rfdetr rej" in md
    assert "- base, `nano-b4-fit`: `run 0: ValueError: rfdetr rejects the data set`" in md
    assert "- base, `nano-b4-fit`: 1 of 3 runs left a record" in md
    assert "| 2 workers | 320 samples/s (n=3, all alike) | not known: no step was measured |" in md


def test_a_broken_record_costs_only_itself(tmp_path: Path) -> None:
    folder = a_folder(tmp_path, the_records())
    broken = folder / "base" / FIT.id / "run-1.record.json"
    broken.write_text("{", encoding="utf-8")
    md, _ = reports(folder)

    assert "(40.00 to 40.80 ms, n=2)" in md
    assert f"`base/{FIT.id}/run-1.record.json: not whole JSON" in md


def test_a_candidate_is_held_against_what_was_before_it(tmp_path: Path) -> None:
    def trained(value: float, run: int) -> Record:
        return a_run(MAP, [a_signal("map", value, "quality", "mAP", direction="higher")], run)

    before = [*the_records(), *(trained(0.5 + run / 100, run) for run in range(3))]
    after = [a_run(FIT, fit_signals(0.5 + run / 100), run) for run in range(3)]
    after += [trained(0.5 + run / 100, run) for run in range(3)]
    md, _ = reports(a_folder(tmp_path, before, head=after))

    assert "## Before and after `fix.py`" in md
    assert "| `map` | `nano-b16-convergence` | 0.51 mAP (0.5 to 0.52 mAP, n=3) |" in md
    assert "| the same in every run |" in md
    assert re.search(
        r"\| `fit_step` \| `nano-b4-fit` \| 101.0 ms .* \| 51.00 ms .* \| 0.50\d+ \(0.4\d+ to 0.5\d+\) \|", md
    )


def test_a_candidate_without_map_says_so(tmp_path: Path) -> None:
    md, _ = reports(a_folder(tmp_path, the_records(), head=[a_run(FIT, fit_signals(), 0)]))

    assert "mAP before and after: not measured: `it was not asked for`" in md


def test_traceml_stands_beside_the_fit_probe(tmp_path: Path) -> None:
    folder = a_folder(tmp_path, the_records())
    traceml_files(folder / TRACEML, step=80.0)
    md, _ = reports(folder)

    assert "| step | 80.00 ms | 100.0 ms | no | 101.0 ms |" in md
    assert "- step: TraceML's step ends where" in md
    assert "| input wait | 0.4000 ms | 0.4000 ms | yes, within 5 % | 0.4040 ms |" in md
    assert "| optimizer | 6.000 ms | 6.000 ms | not asked | 6.060 ms |" in md
    assert "They differ in step: see below for the boundary." in md
    assert "`COMPUTE-BOUND`" in md


def test_a_wait_that_agrees_by_a_share_of_the_step_says_so(tmp_path: Path) -> None:
    folder = a_folder(tmp_path, the_records())
    traceml_files(folder / TRACEML, wait=0.5)
    md, _ = reports(folder)

    assert "| input wait | 0.5000 ms | 0.4000 ms | yes, within 1 % of the step | 0.4040 ms |" in md
    assert "a wait for input may also be 1 % of the step apart (1.000 ms here)" in md
    assert "Step and input wait agree." in md


def test_what_traceml_adds_to_a_phase_is_told_by_the_runs_without_it(tmp_path: Path) -> None:
    """The fit probe's clock beside TraceML saw 0.6 ms; the runs alone half of that."""
    parts = [p.model_copy(update={"value": p.value / 2}) for p in fit_signals()[0].parts]
    folder = a_folder(tmp_path, [a_run(FIT, changed("fit_step", parts=parts), 0)])
    traceml_files(folder / TRACEML)
    md, _ = reports(folder)

    assert "Without TraceML ours is 0.3000 ms; which of its hooks take the rest is not known" in md
    assert "| host to device | not measured | 0.6000 ms | not asked | 0.3000 ms |" in md


def test_a_broken_summary_is_said(tmp_path: Path) -> None:
    folder = a_folder(tmp_path, the_records())
    traceml_files(folder / TRACEML)
    (folder / TRACEML / "final_summary.json").write_text("{}", encoding="utf-8")

    assert "not a summary of TraceML 0.5 with step times" in reports(folder)[0]


class Tags(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.found: set[str] = set()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.found.add(tag)
        assert not any(name.startswith("on") or name == "src" for name, _ in attrs)


def evil_run(run: int) -> Record:
    signals = [
        a_signal(
            signal.name,
            signal.value,
            signal.kind,
            signal.unit,
            samples=signal.samples,
            parts=[
                part.model_copy(
                    update={"name": f"{part.name}{EVIL}" if part.name != "input_wait" else part.name, "where": [EVIL]}
                )
                for part in signal.parts
            ],
        )
        for signal in fit_signals()
    ]
    environment = the_records(1)[0].environment.model_copy(
        update={"gpu_name": EVIL, "workload": EVIL, "rfdetr_source": EVIL}
    )
    return a_run(
        FIT,
        signals,
        run,
        notes=[EVIL],
        adaptations=[EVIL],
        flags={"x": EVIL},
        environment=environment,
        command=EVIL,
        precision=EVIL,
    )


def test_text_from_elsewhere_is_inert_in_both(tmp_path: Path) -> None:
    folder = a_folder(tmp_path, [evil_run(0)], command=EVIL)
    (folder / "base" / FIT.id / "<img src=x>.json.gz").write_bytes(b"")
    md, html = reports(folder)
    tags = Tags()
    tags.feed(html)

    assert tags.found <= {
        *("html", "head", "meta", "title", "style", "body", "h1", "h2", "p", "ul", "li", "a", "code", "div", "table"),
        *("tr", "th", "td", "span", "wbr", "figure", "figcaption", "svg", "rect", "text", "line", "circle"),
    }
    outside = re.sub(r"(`+)(?!`).*?(?<!`)\1(?!`)", "", md)
    assert not re.search(r"<|@you|\*\*b\*\*|\]\(|#12", outside)


def test_report_makes_an_investigation_anew_without_torch(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = a_folder(tmp_path, the_records())

    assert main(["report", str(folder)]) == 0
    assert capsys.readouterr().out == f"{folder / 'report.md'}: written\n{folder / 'report.html'}: written\n"
    code = "\n".join(
        [
            "import sys",
            "from perf.cli import main",
            f"main(['report', {str(folder)!r}])",
            "print('torch' in sys.modules, 'rfdetr' in sys.modules)",
        ]
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-1] == "False False"


def test_the_cpu_lane_says_that_it_has_no_gpu(tmp_path: Path) -> None:
    case = Case(config="nano", lane="cpu", batch_size=2, measure="fit")
    signals = [signal for signal in fit_signals() if signal.name in ("fit_step", "pos_embed")]
    notes = ["a CPU: no device signals (busy, idle, kernels, GEMM, syncs, memory by phase)"]
    md, _ = reports(a_folder(tmp_path, [a_run(case, signals, 0, notes=notes)], runs=1))

    assert (
        "**Unknown: there is no GPU, so that host and GPU cannot be told apart; waiting for input takes 0.4 %.**" in md
    )
    assert "GPU busy, idle, kernels, GEMM: not measured: `a CPU: no device signals" in md
    assert "this is the cpu lane, with a reduced model; its times say nothing of a GPU" in md
    assert "GPU busy |" not in md


def changed(name: str, **update: object) -> list[Signal]:
    """The signals of a fit, one of them otherwise."""
    return [one.model_copy(update=update) if one.name == name else one for one in fit_signals()]


@pytest.mark.parametrize("value", [500.0, 0.0])
def test_phases_that_do_not_sum_to_the_update_are_said_so(tmp_path: Path, value: float) -> None:
    records = [a_run(FIT, fit_signals(), 0), a_run(FIT, changed("fit_step", value=value), 1)]
    md, _ = reports(a_folder(tmp_path, records))

    summed = "In every run the phases sum to the update."
    assert (
        "The phases do not sum to the update, but miss it by 80 %: trust no share of it." if value else summed
    ) in md


def test_an_update_that_took_no_time_is_a_report_without_shares(tmp_path: Path) -> None:
    none = changed("fit_step", value=0.0, parts=[Part(name="input_wait", value=0.0)], samples=[0.0])
    md, _ = reports(a_folder(tmp_path, [a_run(FIT, none, 0)]))

    assert "**Unknown: how long a step takes was not measured in every run.**" in md


def test_a_loader_that_yielded_nothing_is_said_and_is_never_enough(tmp_path: Path) -> None:
    nothing = [a_signal("loader_rate_w0", 0.0, "wall", "samples/s"), a_signal("loader_rate_w2", 90.0, "wall", "1/s")]
    md, _ = reports(a_folder(tmp_path, [a_run(FIT, fit_signals(), 0), a_run(INPUT, nothing, 0)]))

    assert "| 0 workers | 0 samples/s (n=1) | not known: this loader yielded nothing |" in md
    assert "a loader alone is enough with 2 workers or more" in md


def test_a_loader_without_workers_is_never_enough(tmp_path: Path) -> None:
    fast = [a_signal(f"loader_rate_w{count}", 900.0, "wall", "samples/s") for count in (0, 2)]
    alone, both = (
        a_folder(tmp_path / str(n), [a_run(FIT, fit_signals(), 0), a_run(INPUT, fast[:n], 0)]) for n in (1, 2)
    )

    assert "a loader alone is not enough with any number tried" in reports(alone)[0]
    assert "a loader alone is enough with 2 workers or more" in reports(both)[0]


def test_runs_of_the_loop_on_two_machines_get_no_diagnosis(tmp_path: Path) -> None:
    other = the_records(1)[0].environment.model_copy(update={"gpu_name": "NVIDIA B200"})
    records = [a_run(FIT, fit_signals(), 0), a_run(FIT, fit_signals(2.0), 1, environment=other)]
    md, _ = reports(a_folder(tmp_path, records))

    assert md.splitlines()[2:5] == [
        "**No diagnosis: the runs of the training loop are not of one machine and installation.**",
        "",
        "- GPU: `NVIDIA B200 or NVIDIA H200`",
    ]


@pytest.mark.parametrize(
    ("rounds", "told"),
    [
        (
            [-0.9, 4.7, 9.4, 13.4, 15.5, 25.2],
            "not told apart from none: 95 % interval -900.0 us to 25.20 ms of the median of 6 rounds in 1 run",
        ),
        ([9.0, 4.0, 13.0, 15.0, 25.0, 20.0], "14.00 ms (95 % interval 4.000 to 25.00 ms; median of 6 rounds in 1 run)"),
        ([5.0, 6.0], "not told: 2 rounds in 1 run, 5.000 to 6.000 ms, are too few for an interval"),
        ([70.6], "not told: 1 round in 1 run, 70.60 to 70.60 ms, are too few for an interval"),
        ([], "5.500 ms (n=1)"),
    ],
)
def test_a_cost_is_told_with_its_interval_or_not_at_all(tmp_path: Path, rounds: list[float], told: str) -> None:
    cost = {"value": 5.5, "samples": rounds}
    md, _ = reports(a_folder(tmp_path, [a_run(FIT, changed("logging_cost", **cost), 0)]))

    assert f"| a step is longer for logging by (`logging_cost`) | {told} |" in md


def test_the_rounds_of_all_runs_tell_more_than_those_of_one(tmp_path: Path) -> None:
    """As on an H200, where 17 of 18 rounds were longer with logging."""
    runs = ([15.5, -0.9, 9.4, 4.7, 13.4, 25.2], [21.5, 18.3, 32.0, 8.2, 7.3, 17.9], [4.9, 13.1, 13.3, 20.3, 13.4, 40.4])
    records = [a_run(FIT, changed("logging_cost", samples=rounds), run) for run, rounds in enumerate(runs)]
    md, _ = reports(a_folder(tmp_path, records))

    assert "| 13.40 ms (95 % interval 8.200 to 20.30 ms; median of 18 rounds in 3 runs) |" in md


def test_updates_that_stand_out_are_told_below_the_phases_that_they_are_in(tmp_path: Path) -> None:
    steady, disturbed = changed("fit_step", samples=[100.0] * 40), changed("fit_step", samples=[*[100.0] * 39, 776.0])
    folder = a_folder(tmp_path, [a_run(FIT, steady, 0), a_run(FIT, disturbed, 1)])
    md, html = reports(folder)

    assert "- run 1: 1 of 40 updates took 776.0 ms (median 100.0 ms; mean of the others 100.0 ms)" in md.splitlines()
    assert "run 0: " not in md
    assert html.count('class="beyond"') == 1
    assert "longer than the axis" in html


@pytest.mark.parametrize(
    ("compiles", "told"),
    [
        ([*[0] * 39, 2], "; in 1 of them Triton compiled a kernel (solve)"),
        ([2, *[0] * 39], "; in 0 of them Triton compiled a kernel"),
        ([2], ""),
    ],
)
def test_of_updates_that_stand_out_it_is_told_whether_triton_compiled(
    compiles: list[float], told: str, tmp_path: Path
) -> None:
    counted = Signal(
        name="kernel_compiles",
        kind="info",
        unit="compiles",
        value=2,
        samples=compiles,
        parts=[Part(name="solve", value=2)],
    )
    signals = [*changed("fit_step", samples=[*[100.0] * 39, 776.0]), counted]
    md, _ = reports(a_folder(tmp_path, [a_run(FIT, signals, 0)]))

    line = next(line for line in md.splitlines() if "1 of 40 updates" in line)
    assert line.endswith(f"mean of the others 100.0 ms){told}")


def test_updates_that_are_alike_are_not_told_as_outlying(whole: tuple[str, str]) -> None:
    assert "their run's median" not in whole[0]
    assert 'class="beyond"' not in whole[1]


def test_a_function_with_many_lines_says_how_many_more_and_names_its_file_once(tmp_path: Path) -> None:
    name = "criterion rfdetr/models/criterion.py:SetCriterion.loss_labels"
    where = [f"rfdetr/models/criterion.py:{line}" for line in (652, 666, 670, 671, 785)]
    parts = [Part(name=name, value=26, where=[*where])]
    md, _ = reports(a_folder(tmp_path, [a_run(FIT, changed("sync_counts", parts=parts), 0)]))

    assert f"| `{name}` | `652`, `666`, `670`, and 2 more | 26 (n=1) | - |" in md


@pytest.mark.parametrize(
    ("count", "told"), [(13, "1 more function is in the records."), (15, "3 more functions are in the records.")]
)
def test_functions_that_are_not_in_the_table_are_counted(tmp_path: Path, count: int, told: str) -> None:
    parts = [Part(name=f"forward f{n}", value=1) for n in range(count)]
    signals = [s.model_copy(update={"parts": parts}) if s.name.startswith("sync_") else s for s in fit_signals()]
    md, _ = reports(a_folder(tmp_path, [a_run(FIT, signals, 0)]))

    assert told in md.splitlines()


def test_top_kernels_have_short_names_and_say_what_is_not_among_them(whole: tuple[str, str]) -> None:
    assert "| `elementwise float` | 3.000 ms (n=3, all alike) |" in whole[0]
    assert "Kernels alone: GPU busy above has copies and fills too." in whole[0]


def test_a_captured_step_is_not_passed_off_as_a_compiled_one(tmp_path: Path) -> None:
    captured = Case(config="nano", compile=True, backend="eager")
    warning = "is torch.compile without Inductor"
    (tmp_path / "a").mkdir()

    assert warning in reports(a_folder(tmp_path / "a", [a_run(captured, step_signals(), 0)]))[0]
    assert warning not in reports(a_folder(tmp_path, the_records()))[0]


def test_generated_photographs_are_called_generated(tmp_path: Path) -> None:
    case = Case(config="nano", measure="fit", data="photographs")
    md, _ = reports(a_folder(tmp_path, [a_run(case, fit_signals(), 0)]))

    assert "| data | `shapes 0123456789ab`, generated |" in md


def test_kernels_that_are_not_in_the_table_are_in_its_rest(tmp_path: Path) -> None:
    """The probe names 20 and a rest, the table 12: sum 20 * 21 / 2 + 1 ms, of which 20 + ... + 9 are named."""
    parts = [Part(name=f"kernel_{chr(97 + n)}", value=n) for n in range(20, 0, -1)]
    time = {"value": 211.0, "parts": [*parts, Part(name="all other kernels", value=1.0)]}
    md, _ = reports(a_folder(tmp_path, [a_run(FIT, changed("kernel_time", **time), 0)]))

    assert "| all other kernels | 37.00 ms (n=1) |" in md
    assert "| sum | 211.0 ms (n=1) |" in md
    assert "kernel_j`" in md
    assert "kernel_i`" not in md


def test_a_report_names_no_folder_of_the_machine(tmp_path: Path) -> None:
    """It is there to be posted, and a path often names who works there."""
    failed = a_run(STEP, [], 0, status="failed", error="ValueError: rfdetr does not take /home/anna/cells, sorry\n")
    commands = {
        FIT: "pytest tests/suite --case nano-b4-fit --data '/home/anna/my cells'",
        INPUT: "pytest tests/suite --data /home/anna/out/data/photographs --patch=/home/anna/fix.py '",
    }
    runs = [a_run(case, fit_signals(), 0, command=command) for case, command in commands.items()]
    folder = a_folder(tmp_path, [failed, *runs])
    (folder / "base" / INPUT.id / "run-1.record.json").write_text("{", encoding="utf-8")
    for text in reports(folder):
        assert "anna" not in text
        assert str(tmp_path) not in text

    md = (folder / "report.md").read_text(encoding="utf-8")
    assert "Made by `pytest tests/suite --case nano-b4-fit --data 'my cells' --runs 3`" in md


def test_generated_data_are_named_as_they_lie_beside_the_report(tmp_path: Path) -> None:
    command = "pytest tests/suite --data /home/anna/out/data/photographs"
    md, _ = reports(a_folder(tmp_path, [a_run(FIT, fit_signals(), 0, command=command)]))

    assert "Made by `pytest tests/suite --data FOLDER/data/photographs --runs 3`" in md
    assert "`FOLDER/data/photographs` is a generated data set: `investigate` with `--out FOLDER` writes it first." in md


def test_a_missing_package_is_said_in_a_few_words(tmp_path: Path) -> None:
    note = (
        "augment_gpu not measured: ValueError: rfdetr 1.11.2 rejects /tmp/photographs with "
        "augmentation_backend='gpu': ImportError: GPU augmentation requires kornia. "
        "Install with: pip install 'rfdetr[augment]'"
    )
    md, _ = reports(a_folder(tmp_path, [a_run(INPUT, input_signals(), 0, notes=[note])]))

    assert md.count(": needs `kornia`: `pip install 'rfdetr[augment]'`") == 2
    assert "ImportError" not in md
    assert "What the runs note" not in md


@pytest.mark.parametrize(("multi_scale", "told"), [("off", True), ("per-batch", False)])
def test_batches_of_one_size_are_said_to_leave_other_sizes_out(tmp_path: Path, multi_scale: str, told: bool) -> None:
    case = Case.model_validate({"config": "nano", "measure": "fit", "multi_scale": multi_scale})
    md, _ = reports(a_folder(tmp_path, [a_run(case, fit_signals(), 0)]))

    assert ("- training at several sizes: `multi_scale='off'` here" in md) is told


def test_a_warm_cache_is_said_not_to_be_a_cold_compile(tmp_path: Path) -> None:
    warm = [*step_signals(), a_signal("inductor_cache_hits", 16, "info", "graphs")]
    cold = [*step_signals(), a_signal("inductor_cache_misses", 16, "info", "graphs")]
    both = a_folder(tmp_path / "both", [a_run(COMPILED, warm, 0), a_run(COMPILED, cold, 1)])
    alone = a_folder(tmp_path / "cold", [a_run(COMPILED, cold, 0)])

    told = "- compiling cold: `first_step` of 1 of 2 compiled runs is with a warm cache, 16 graphs from it"
    assert told in reports(both)[0]
    assert "compiling cold" not in reports(alone)[0]


def test_disturbances_say_what_was_looked_at(tmp_path: Path) -> None:
    calm, throttled = GpuState(index=0), GpuState(index=0, throttle_reasons=["sw-power-cap"], other_processes=[7])
    unseen = "not looked at: load of the host's CPUs, its memory, its other GPUs |"
    looked = "looked at, before and after each run: lower clocks of this GPU and why (NVML), other processes on it"
    for name, states, told in (
        ("none", [], unseen),
        ("calm", [calm], f"none seen; {looked}; {unseen}"),
        ("busy", [throttled], f"`GPU 0 throttled: sw-power-cap`, `GPU 0 used by 1 other process`; {looked}; {unseen}"),
    ):
        md, _ = reports(a_folder(tmp_path / name, [a_run(FIT, fit_signals(), 0, gpu_after=states)]))
        assert f"| disturbances | {told}" in md
