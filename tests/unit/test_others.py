from __future__ import annotations

import sys
from pathlib import Path

import pytest
from factories import a_record, a_signal

from perf.others import benchmark_opinion, parse_opinion, traceml_opinion
from perf.record import Record


def timed(*samples: float, name: str = "step_time") -> Record:
    return a_record([a_signal(name, samples[0], "wall", "ms", samples=list(samples))])


@pytest.mark.parametrize(
    ("head", "said", "percent"), [((106, 106), "fails", 6), ((104, 106), "silent", 5), ((50,), "silent", -50)]
)
def test_pytest_benchmark_fails_beyond_5_percent_of_the_mean(
    head: tuple[float, ...], said: str, percent: float
) -> None:
    opinion = benchmark_opinion(timed(100, 100), timed(*head))

    assert opinion is not None
    assert opinion.said == said
    assert opinion.percent == pytest.approx(percent)


@pytest.mark.parametrize("name", ["fit_step", "getitem"])
def test_a_fit_and_an_input_have_samples_too(name: str) -> None:
    opinion = benchmark_opinion(timed(10, name=name), timed(20, name=name))

    assert opinion is not None
    assert (opinion.said, opinion.percent) == ("fails", 100)


def test_a_training_has_no_samples_to_compare() -> None:
    assert benchmark_opinion(timed(1), a_record([a_signal("map", 0.9, "quality")])) is None


def policy(percent: float) -> str:
    return f'{{"ci_policy": {{"threshold_pct": 5.0, "pct_change": {percent}, "result": "INCONCLUSIVE"}}}}'


@pytest.mark.parametrize(("percent", "said"), [(22.5, "fails"), (5.0, "silent"), (-3.0, "silent")])
def test_traceml_is_taken_at_its_own_figure_and_threshold(tmp_path: Path, percent: float, said: str) -> None:
    # What stands for its compare: arguments are -m, module, compare, base, head, --output, OUT.
    script = tmp_path / "python"
    answer = policy(percent)
    script.write_text(
        f"#!{sys.executable}\nimport pathlib, sys\npathlib.Path(sys.argv[7] + '.json').write_text({answer!r})\n"
    )
    script.chmod(0o755)

    opinion = traceml_opinion(script, tmp_path / "a", tmp_path / "b", tmp_path / "a.compare")

    assert (opinion.said, opinion.percent) == (said, percent)


def test_a_traceml_that_says_nothing_is_an_error(tmp_path: Path) -> None:
    script = tmp_path / "python"
    script.write_text("#!/bin/sh\necho it broke >&2\nexit 3\n")
    script.chmod(0o755)
    (tmp_path / "out.json").write_text(policy(22.5))  # of a compare before

    with pytest.raises(ValueError, match=r"compare left no .*out.json: it broke"):
        traceml_opinion(script, tmp_path / "a", tmp_path / "b", tmp_path / "out")
    with pytest.raises(ValueError, match="says nothing of step time"):
        parse_opinion({"ci_policy": {"pct_change": None, "threshold_pct": 5}})
