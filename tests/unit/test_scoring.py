from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from perf.annotations import Annotation, DataSet, Image, Split
from perf.scoring import Detection, Scores, score, truth_of

BOX = (10.0, 10.0, 20.0, 20.0)


def a_split(*boxes: Annotation, images: int = 1) -> Split:
    listed = [Image(number, Path(f"{number}.png"), 64, 64) for number in range(images)]
    return Split("valid", Path("valid.json"), listed, list(boxes))


def truth(
    image: int = 0, category: int = 1, box: tuple[float, float, float, float] = BOX, crowd: bool = False
) -> Annotation:
    return Annotation(image, category, box, "annotation 1", crowd)


def scored(split: Split, *detections: Detection, most: int = 500) -> Scores:
    data = DataSet(Path(), "roboflow", {1: "a", 2: "b"}, split, split, "")
    return score(data, split, detections, most)


def found(
    score: float = 0.9, image: int = 0, category: int = 1, box: tuple[float, float, float, float] = BOX
) -> Detection:
    return Detection(image, category, box, score)


def test_what_is_found_exactly_scores_1() -> None:
    assert scored(a_split(truth()), found()) == pytest.approx((1, 1, 1))


def test_what_overlaps_by_three_fifths_scores_at_half_and_not_at_three_quarters() -> None:
    scores = scored(a_split(truth()), found(box=(10, 10, 20, 12)))

    assert scores == pytest.approx((0.3, 1, 0))  # IoU 0.6: at 0.50, 0.55 and 0.60 of ten


@pytest.mark.parametrize(
    "detection", [found(category=2), found(image=1), found(box=(40, 40, 20, 20)), found(category=-1)]
)
def test_another_class_image_or_place_scores_0(detection: Detection) -> None:
    assert scored(a_split(truth(), images=2), detection) == pytest.approx((0, 0, 0))


def test_nothing_found_scores_0() -> None:
    assert scored(a_split(truth())) == (0, 0, 0)


def test_a_surer_false_one_costs_precision_and_one_beyond_the_most_does_not() -> None:
    false = found(0.95, box=(40, 40, 20, 20))

    assert scored(a_split(truth()), false, found()).map == pytest.approx(0.5)
    assert scored(a_split(truth()), found(), found(0.1, box=(40, 40, 20, 20)), most=1).map == pytest.approx(1)


def test_classes_count_alike_and_those_without_a_box_not_at_all() -> None:
    both = a_split(truth(), truth(category=2, box=(40, 40, 20, 20)))

    assert scored(both, found()).map == pytest.approx(0.5)
    assert scored(a_split(truth()), found(), found(category=2)).map == pytest.approx(1)


def test_a_detection_in_a_crowd_is_neither_right_nor_wrong() -> None:
    split = a_split(truth(box=(40, 40, 20, 20)), truth(crowd=True))

    assert scored(split, found(0.95), found(0.9, box=(40, 40, 20, 20))).map == pytest.approx(1)


def test_boxes_without_area_are_left_out_as_rfdetr_leaves_them_out() -> None:
    document = truth_of(
        DataSet(Path(), "roboflow", {1: "a"}, a_split(), a_split(), ""), a_split(truth(box=(1, 1, 0, 5)))
    )

    assert document["annotations"] == []


@pytest.mark.parametrize(
    ("marked", "scored_as"),
    [((54.8, 20, 10, 10), (54.8, 20, 9.2, 10)), ((-0.8, -0.5, 10, 10), (0, 0, 9.2, 9.5))],
)
def test_a_box_that_rounding_takes_out_of_its_image_is_clipped_to_it_as_rfdetr_does(
    marked: tuple[float, float, float, float], scored_as: tuple[float, float, float, float]
) -> None:
    assert scored(a_split(truth(box=marked)), found(box=scored_as)).map == pytest.approx(1)


def test_a_box_of_which_nothing_is_in_its_image_is_left_out_and_a_crowd_stays_as_it_is() -> None:
    split = a_split(truth(box=(64, 1, 1, 5)), truth(box=(63, 1, 2, 5), crowd=True))
    document = truth_of(DataSet(Path(), "roboflow", {1: "a"}, split, split, ""), split)

    assert [entry["bbox"] for entry in document["annotations"]] == [[63, 1, 2, 5]]


boxes = st.tuples(st.floats(0, 30), st.floats(0, 30), st.floats(1, 30), st.floats(1, 30))


@settings(deadline=None, max_examples=40)
@given(st.lists(st.tuples(boxes, st.integers(1, 2)), min_size=1, max_size=4))
def test_the_truth_itself_scores_1_and_scores_stay_within_0_and_1(
    marked: list[tuple[tuple[float, float, float, float], int]],
) -> None:
    split = a_split(*(truth(category=category, box=box) for box, category in marked))

    exact = scored(split, *(found(category=category, box=box) for box, category in marked))
    some = scored(split, *(found(0.5, category=3 - category, box=box) for box, category in marked))

    assert exact.map == pytest.approx(1)
    assert all(0 <= value <= 1 for value in some)
