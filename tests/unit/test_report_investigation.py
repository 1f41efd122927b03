from __future__ import annotations

import re
import subprocess
import sys
from html.parser import HTMLParser
from pathlib import Path

import pytest
from factories import a_signal
from investigated import COMPILED, FIT, INPUT, MAP, a_folder, a_run, fit_signals, the_records, traceml_files

from perf.case import Case
from perf.cli import main
from perf.investigation import TRACEML
from perf.record import Record
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
        "the GPU is busy for 11.9 %. GPU busy for 11.9 % of a step: at most 8.2x from removing all host time, as "
        "measured here.**"
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
        "| `optimizer clip` | `rfdetr/b.py:2` | 20 syncs (n=3, all alike) | 1.000 ms (n=3, all alike) |",
        "| photographs, BMP, large (`getitem_bmp_large`) | 33.00 ms (n=3, all alike) | 30 ms, 91 % | 2 ms, 6.1 % "
        "| 1 ms, 3 % |",
        "| 2 workers | 320 samples/s (n=3, all alike) | no |",
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
    assert "- base, `nano-b4-fit`: 1 of 3 runs were begun" in md
    assert "| 2 workers | 320 samples/s (n=3, all alike) | not known: no step was measured |" in md


def test_a_broken_record_costs_only_itself(tmp_path: Path) -> None:
    folder = a_folder(tmp_path, the_records())
    broken = folder / "base" / FIT.id / "run-1.record.json"
    broken.write_text("{", encoding="utf-8")
    md, _ = reports(folder)

    assert "(40.00 to 40.80 ms, n=2)" in md
    assert f"{broken}: not whole JSON" in md


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

    assert "| step | 80 ms | 100 ms | no | `TraceML's step ends" not in md
    assert re.search(r"\| step \| 80 ms \| 100 ms \| no \| TraceML's step ends where", md)
    assert "| input wait | 0.4 ms | 0.4 ms | yes |  |" in md
    assert "They differ in step: see the last column for the boundary." in md
    assert "`COMPUTE-BOUND`" in md


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
        *("tr", "th", "td", "span", "figure", "figcaption", "svg", "rect", "text", "line", "circle"),
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
