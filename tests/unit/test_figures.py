from __future__ import annotations

import xml.etree.ElementTree as ET

import pytest

from perf.report.figures import Bar, Run, bars, shortened, stacked, strips


def rects(svg: str, name: str) -> list[dict[str, str]]:
    return [found.attrib for found in ET.fromstring(svg).iter("rect") if found.get("class", "").startswith(name)]


def test_a_stack_is_as_wide_as_its_parts() -> None:
    svg = stacked({"host": {"a": 25, "b": 50}, "GPU": {"b": 10}}, ["a", "b"], whole=100)
    first, second, busy = rects(svg, "c")

    assert (first["x"], first["width"], first["class"]) == ("0.000%", "25.000%", "c0")
    assert (second["x"], second["width"]) == ("25.000%", "50.000%")
    assert (busy["x"], busy["width"], busy["class"]) == ("0.000%", "10.000%", "c1")


def test_a_stack_ends_where_its_rail_does() -> None:
    [first, second] = rects(stacked({"GPU": {"a": 80, "b": 80}}, ["a", "b"], whole=100), "c")

    assert (first["width"], second["width"]) == ("80.000%", "20.000%")


def test_bars_share_a_scale_with_the_mark() -> None:
    svg = bars([Bar("w0", 10, "10 samples/s"), Bar("w2", 20, "20")], mark=(40, "a step takes 40"))

    assert [one["width"] for one in rects(svg, "bar")] == ["25.000%", "50.000%"]
    assert 'x1="100.000%"' in svg
    assert "a step takes 40" in svg


def test_a_strip_has_a_dot_a_sample_and_the_ends_of_the_axis() -> None:
    svg = strips([Run("run 0", [1, 2, 3], 2), Run("run 1", [5], 5)], "ms")
    dots = [found.get("cx") for found in ET.fromstring(svg).iter("circle")]

    assert dots == ["0.00%", "25.00%", "50.00%", "100.00%"]
    assert ">1 ms<" in svg
    assert ">5 ms<" in svg


def test_a_strip_puts_what_is_beyond_its_axis_at_the_end_and_says_so() -> None:
    svg = strips([Run("run 0", [1, 2, 3, 90], 24)], "ms", most=3)
    dots = [(found.get("cx"), found.get("class")) for found in ET.fromstring(svg).iter("circle")]

    assert dots == [("0.00%", "dot"), ("50.00%", "dot"), ("100.00%", "dot"), ("100.00%", "beyond")]
    assert ">3 ms or more<" in svg


@pytest.mark.parametrize("svg", [bars([]), strips([], "ms"), strips([Run("r", [], 3)], "ms"), stacked({}, [], 0)])
def test_nothing_to_draw_is_still_a_picture(svg: str) -> None:
    assert ET.fromstring(svg).tag == "svg"


def test_names_from_elsewhere_are_text() -> None:
    evil = '</svg><script>"x"</script>\x07'
    for svg in (
        bars([Bar(evil, 1, evil)], mark=(1, evil)),
        strips([Run(evil, [1], 1)], evil),
        stacked({evil: {evil: 1}}, [evil], 1),
    ):
        assert not list(ET.fromstring(svg).iter("script"))


def test_a_long_name_keeps_both_ends() -> None:
    assert shortened("void at::native::kernel<float>(int)", 11) == "void …(int)"
    assert shortened("short", 11) == "short"
