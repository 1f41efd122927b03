"""Replays as text, and the document made from its store."""

from __future__ import annotations

from pathlib import Path

import pytest

from perf.cli import main
from perf.compile_matrix import STORE as MATRIX
from perf.replay import DOCUMENT, STORE, chosen
from perf.replay_outcome import Result
from perf.replay_store import Kept, read_kept
from perf.report.replay import check, regenerate, text

ROOT = Path(__file__).resolve().parents[2]
NAME = "graph-breaks"
CAUGHT = Kept(name=NAME, outcome="caught", said=["graph_breaks: regressed; 0 -> 6"], spent={"1.11.0 a": 60.0})


def test_the_committed_document_is_what_its_store_gives() -> None:
    assert regenerate(ROOT / STORE, ROOT / DOCUMENT, check=True) == (0, "")


def test_every_committed_result_is_as_it_must_be() -> None:
    assert check(ROOT / STORE, ROOT / DOCUMENT, ROOT / MATRIX) == (
        0,
        f"{len(read_kept(ROOT / STORE))} replays as they must be\n",
    )


def test_a_check_names_the_document_and_every_result_that_is_not_as_it_must_be(tmp_path: Path) -> None:
    store, document = tmp_path / "replay.jsonl", tmp_path / "replay.md"
    regenerate(store, document, [Kept(name=NAME, outcome="other", wrong=["graphs: pass"])])
    document.write_text("by hand", encoding="utf-8")
    code, said = check(store, document, ROOT / MATRIX)

    assert code == 1
    assert f"{NAME}: other: graphs: pass; measure it: nox -s replay -- -k {NAME} --document\n" in said
    assert "gate-closed: the store has no result; " in said
    assert "gpu-gate-closed" not in said
    assert said.splitlines()[-1].startswith(f"{document}: not what the store gives")


def test_results_are_kept_and_replaced_by_name_and_shown(tmp_path: Path) -> None:
    store, document = tmp_path / "replay.jsonl", tmp_path / "replay.md"
    regenerate(store, document, [CAUGHT, Kept(name="no such replay", outcome="caught")])
    regenerate(store, document, [Kept(name="gate-closed", outcome="other", wrong=["frames: pass"])])

    assert [one.name for one in read_kept(store)] == ["gate-closed", NAME]
    shown = document.read_text(encoding="utf-8")
    assert "- `graph_breaks: regressed; 0 -> 6`" in shown
    assert "- not as it must be: `frames: pass`" in shown
    assert f"| {NAME} | 1.10.1 to 1.11.0 | `nano-cpu-b2-compile-eager` |" in shown
    # What has not been run is never shown as caught.
    assert shown.count("| caught |") == 1
    assert "| not measured yet |" in shown
    assert "| not run here |" in shown


def on(device: str, select: str, **spent: float) -> list[Kept]:
    """Return results of a whole selection that was measured on one machine."""
    where = {"device": device, "cpu": "EPYC x2", "torch": "2.14.1", "python": "3"}
    names = [one.name for one in chosen(select) if not one.recorded]
    return [Kept.model_validate({"name": name, "outcome": "caught", "spent": spent, **where}) for name in names]


def test_a_run_that_several_replays_share_is_counted_once(tmp_path: Path) -> None:
    store, document = tmp_path / "replay.jsonl", tmp_path / "replay.md"
    results = {one.name: one for one in on("cpu", "cpu", a=60.0, b=30.0)}
    results["bmp-decode"] = results["bmp-decode"].model_copy(update={"spent": {"a": 90.0}})
    regenerate(store, document, list(results.values()))

    shown = document.read_text(encoding="utf-8")
    assert "Measured on EPYC x2, torch 2.14.1, Python 3. The runs of `--select ci` took 1.5 minutes there." in shown
    assert "The runs of `--select cpu` took 2.0 minutes there." in shown


def test_each_machine_is_named_with_the_selections_that_it_ran_whole(tmp_path: Path) -> None:
    store, document = tmp_path / "replay.jsonl", tmp_path / "replay.md"
    regenerate(store, document, [*on("cpu", "ci")[1:], *on("nvidia-h200", "gpu", c=600.0)])

    assert (
        "\nMeasured on EPYC x2, torch 2.14.1, Python 3. Measured on nvidia-h200 beside EPYC x2, torch 2.14.1, "
        "Python 3. The runs of `--select gpu` took 10.0 minutes there.\n"
    ) in document.read_text(encoding="utf-8")


def test_a_document_that_differs_from_its_store_is_told(tmp_path: Path) -> None:
    store, document = tmp_path / "replay.jsonl", tmp_path / "replay.md"
    regenerate(store, document, [CAUGHT])
    assert regenerate(store, document, check=True) == (0, "")

    document.write_text("by hand", encoding="utf-8")
    code, said = regenerate(store, document, check=True)
    assert (code, said.partition(":")[0]) == (1, str(document))


def test_a_session_ends_with_each_outcome_and_their_counts() -> None:
    replays = chosen("all", [NAME, "gate-closed"])
    results = [Result("gate-closed", "not caught", wrong=("frames: pass, must be not-compiled",))]
    shown = text(replays, [*results, Result(NAME, "caught", ("graph_breaks: regressed; 0 -> 6",))]).splitlines()

    assert shown[0].split() == ["not", "caught", "gate-closed", "1.10.0", "alone,", replays[0].case]
    assert shown[1].strip() == "! frames: pass, must be not-compiled"
    assert shown[-1] == "2 replays: 1 caught, 1 not caught"


def test_the_command_lists_without_running(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["replay", "--list", "-k", "bmp-decode"]) == 0
    assert capsys.readouterr().out.split() == [
        "bmp-decode",
        "1.10.1",
        "to",
        "1.11.0",
        "nano-cpu-b2-input,",
        "10",
        "pairs",
    ]


def test_the_document_is_made_anew_and_checked_by_the_command(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "docs").mkdir()
    for path in (STORE, MATRIX):
        (tmp_path / path).write_text((ROOT / path).read_text(encoding="utf-8"), encoding="utf-8")
    monkeypatch.chdir(tmp_path)

    assert main(["replay", "--check"]) == 1
    assert main(["replay", "--regenerate"]) == 0
    assert main(["replay", "--check"]) == 0
    kept = (tmp_path / STORE).read_text(encoding="utf-8")
    (tmp_path / STORE).write_text(kept.replace("0 -> 6", "0 -> 5"), encoding="utf-8")
    main(["replay", "--regenerate"])
    capsys.readouterr()
    assert main(["replay", "--check"]) == 1
    assert capsys.readouterr().out.startswith(f"{NAME}: the result does not show graph_breaks: regressed, ^0 -> 6")


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("-k", "nonsense"), "no replay is of selection all and -k nonsense"),
        (("--again", "gone"), "gone: no such session of replays"),
        (("-k", "gate-closed"), "no interpreter for rfdetr 1.10.0"),
    ],
)
def test_bad_input_is_one_line(
    words: tuple[str, ...], said: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["replay", "--records", str(tmp_path), *words]) == 2
    assert said in capsys.readouterr().err


def test_an_interpreter_is_given_with_its_release(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["replay", "--python", "bin/python"])
    assert "is not RELEASE=FILE, such as 1.10.1=env/bin/python" in capsys.readouterr().err
