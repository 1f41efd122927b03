from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.version import Version

from perf.matrix import DEFAULT_MINOR, DEFAULT_RFDETR, MATRIX, known_failure, pins_for, rfdetr_requirement


def test_every_torch_minor_from_2_2_to_2_15_is_there_in_order() -> None:
    assert list(MATRIX) == [f"2.{minor}" for minor in range(2, 16)]


@pytest.mark.parametrize("minor", MATRIX)
def test_pins_are_exact_and_of_their_minor(minor: str) -> None:
    requirements = [Requirement(text) for text in pins_for(minor).requirements]

    assert all(str(item.specifier).startswith("==") for item in requirements)
    assert len({item.name for item in requirements}) == len(requirements)
    assert pins_for(minor).torch.startswith(f"{minor}.")


# What rfdetr 1.9.0 to 1.11.2 ask for in their metadata, where it bears on a pin.
RFDETR_ASKS = (
    "torch>=2.2.0",
    "torchvision>=0.17.0",
    "transformers>=5.1.0,<6.0.0",
    "pytorch-lightning>=2.6,!=2.6.2,!=2.6.3,<3",
    "torchmetrics>=1.8.2,<1.9.0",
)


@pytest.mark.parametrize("minor", MATRIX)
@pytest.mark.parametrize("asked", RFDETR_ASKS)
def test_pins_are_what_rfdetr_allows(minor: str, asked: str) -> None:
    pinned = dict(text.split("==") for text in pins_for(minor).requirements)
    requirement = Requirement(asked)

    assert requirement.specifier.contains(pinned[requirement.name])


def transformers_floor(transformers: Version) -> Version:
    """Return the oldest torch that this transformers does not hide; its metadata does not say."""
    if transformers < Version("5.15"):
        return Version("2.4")
    return Version("2.5") if transformers < Version("5.20") else Version("2.6")


@pytest.mark.parametrize("minor", MATRIX)
def test_transformers_sees_torch_unless_a_failure_is_known(minor: str) -> None:
    pins = pins_for(minor)
    seen = Version(pins.torch) >= transformers_floor(Version(pins.transformers))

    assert seen == (known_failure(minor, compiled=False) is None)


def test_torch_2_2_gets_a_numpy_it_was_built_for() -> None:
    assert Version(pins_for("2.2").numpy) < Version("2")


def test_the_pattern_of_a_known_failure_matches_what_rfdetr_says() -> None:
    failure = pins_for("2.3").known_failure
    text = "ImportError: cannot import name 'BackboneConfigMixin' from 'transformers' (.../__init__.py)"

    assert failure is not None
    assert re.search(failure.pattern, text)


def test_a_failure_of_compiled_cases_leaves_eager_ones_alone() -> None:
    assert known_failure("2.6", compiled=True) is pins_for("2.6").known_failure
    assert known_failure("2.6", compiled=False) is None
    assert known_failure("2.2", compiled=False) is pins_for("2.2").known_failure
    assert known_failure("2.14", compiled=True) is None
    assert known_failure("9.9", compiled=True) is None


@pytest.mark.parametrize(
    ("case_id", "rfdetr", "known"),
    [
        ("seg-nano-b4-compile", "1.11.2", True),
        ("seg-2xlarge-b16-compile-parity", "1.12.0", True),
        ("seg-nano-b4-compile", "1.11.1", False),
        ("seg-nano-cpu-b2-compile-eager", "1.11.2", False),
        ("nano-b4-compile", "1.11.2", False),
        ("", "1.11.2", False),
    ],
)
def test_a_failure_of_some_cases_is_known_of_those_from_its_release_on(case_id: str, rfdetr: str, known: bool) -> None:
    assert (known_failure("2.11", True, rfdetr, case_id) is not None) is known


def test_a_failure_says_in_words_whose_it_is() -> None:
    told = {minor: pins.known_failure.what for minor, pins in MATRIX.items() if pins.known_failure}
    assert told["2.2"] == "rfdetr is known not to work"
    assert told["2.6"] == "compiled cases fall back"
    assert told["2.11"] == "compiled segmentation cases of the gpu lane fall back"
    assert all(
        bool(pins.known_failure.cases) == bool(pins.known_failure.who) for pins in MATRIX.values() if pins.known_failure
    )


@pytest.mark.parametrize("minor", ["2.1", "2.16", "2.14.1", "", "nightly"])
def test_an_unknown_minor_lists_the_known_ones(minor: str) -> None:
    with pytest.raises(ValueError, match=r"unknown torch minor .*known: 2\.2, 2\.3, .*, 2\.15") as caught:
        pins_for(minor)

    assert repr(minor) in str(caught.value)


def test_default_minor_is_in_the_matrix() -> None:
    assert DEFAULT_MINOR in MATRIX


@pytest.mark.parametrize("release", [DEFAULT_RFDETR, "1.11.1", "1.12.0rc1", "1.12.0.dev3", "1.11.2.post1"])
def test_a_release_is_pinned_with_its_training_extra(release: str) -> None:
    requirement = Requirement(rfdetr_requirement(release))

    assert requirement.name == "rfdetr"
    assert requirement.extras == {"train"}
    assert requirement.specifier.contains(release, prereleases=True)


@pytest.mark.parametrize(
    ("value", "url"),
    [
        ("git+https://host.example/o/rf-detr.git@main", "git+https://host.example/o/rf-detr.git@main"),
        ("https://host.example/o/rf-detr.git@1f2e3d", "git+https://host.example/o/rf-detr.git@1f2e3d"),
        ("https://host.example/o/rf-detr.git", "git+https://host.example/o/rf-detr.git"),
        ("ssh://git@host.example/o/rf-detr.git@v1", "git+ssh://git@host.example/o/rf-detr.git@v1"),
    ],
)
def test_a_git_url_becomes_a_direct_reference(value: str, url: str) -> None:
    requirement = Requirement(rfdetr_requirement(value))

    assert requirement.extras == {"train"}
    assert requirement.url == url


@pytest.mark.parametrize("value", ["rf-detr", "./rf-detr", "../{parent}/rf-detr"])
def test_a_checkout_is_found_from_where_the_user_stands(tmp_path: Path, value: str) -> None:
    checkout = tmp_path / "rf-detr"
    checkout.mkdir()
    (checkout / "pyproject.toml").touch()

    requirement = Requirement(rfdetr_requirement(value.format(parent=tmp_path.name), tmp_path))

    assert requirement.url == checkout.as_uri()
    assert requirement.extras == {"train"}


@pytest.mark.parametrize("value", ["./no-such", "/no/such/rf-detr", "~/no-such-rf-detr"])
def test_a_path_without_a_checkout_is_named(tmp_path: Path, value: str) -> None:
    with pytest.raises(ValueError, match=r"no pyproject\.toml there.*a git URL such as") as caught:
        rfdetr_requirement(value, tmp_path)

    assert Path(value).name in str(caught.value)


@pytest.mark.parametrize("value", ["", "latest", "1.11.x", ">=1.11", "https://host.example/page", "v1.11.1", "main"])
def test_other_values_list_what_is_accepted(tmp_path: Path, value: str) -> None:
    with pytest.raises(ValueError, match=r"not something to install; give a release .* git URL such as"):
        rfdetr_requirement(value, tmp_path)


def test_the_module_needs_the_standard_library_only() -> None:
    program = (
        "import sys; before = set(sys.modules); import perf.matrix; "
        "new = {name.partition('.')[0] for name in set(sys.modules) - before}; "
        "print(sorted(new - sys.stdlib_module_names - {'perf'}))"
    )
    root = Path(__file__).resolve().parents[2]

    done = subprocess.run([sys.executable, "-c", program], cwd=root, capture_output=True, text=True, check=True)

    assert done.stdout.strip() == "[]"
