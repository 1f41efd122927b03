"""What to install for each torch minor, and what is known not to work and why.

Needs the standard library only: ``noxfile.py`` imports it where nothing but nox is installed.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

# The release that is measured unless ``--rfdetr`` says otherwise. Pinned here and nowhere else.
DEFAULT_RFDETR = "1.11.2"

# Every release in the span that the perf/rfdetr_* modules know the differences of; `nox -s releases` proves it.
RELEASES = ("1.9.0", "1.9.1", "1.9.2", "1.9.3", "1.9.4", "1.10.0", "1.10.1", "1.11.0", "1.11.1", "1.11.2")

# The torch minor of the project's own tests, and of the cpu lane's committed baselines.
DEFAULT_MINOR = "2.14"

# Training needs these on top of rfdetr's core.
EXTRA = "train"

ACCEPTED = (
    "a release such as 1.11.1, the path of a local checkout, "
    "or a git URL such as git+https://HOST/OWNER/rf-detr.git@REF"
)


@dataclass(frozen=True)
class KnownFailure:
    """What does not work with a torch minor: why, and a regex that the last line of its error matches.

    ``compiled``: cases with compile on fail, the others work. ``since``: the first release of rfdetr that does.
    ``cases``: a regex that the ids of the failing cases match, where it is not all of them; ``who`` says it in words.
    """

    reason: str
    pattern: str
    compiled: bool = False
    since: tuple[int, ...] = (0, 0)
    cases: str = ""
    who: str = ""

    @property
    def what(self) -> str:
        """What does not work, in a few words."""
        return f"{self.who or 'compiled cases'} fall back" if self.compiled else "rfdetr is known not to work"


@dataclass(frozen=True)
class Pins:
    """Exact releases for one torch minor. Whatever can change a count is pinned; the rest may float.

    ``numpy`` and the others are versions without an operator. ``known_failure`` is None where rfdetr works;
    ``known_mismatch`` says why a compiled step is known to compute something else than the eager one.
    """

    torch: str
    torchvision: str
    numpy: str = "2.4.6"
    transformers: str = "5.24.0"
    pytorch_lightning: str = "2.6.6"
    torchmetrics: str = "1.8.2"
    pycocotools: str = "2.0.11"
    scipy: str = "1.17.1"
    python: str = "3.11"
    known_failure: KnownFailure | None = None
    known_mismatch: str = ""

    @property
    def torch_requirements(self) -> list[str]:
        """Return torch and torchvision, which come from one index, as pip requirements."""
        return [f"torch=={self.torch}", f"torchvision=={self.torchvision}"]

    @property
    def requirements(self) -> list[str]:
        """Return everything that is pinned as pip requirements, torch first."""
        return [
            *self.torch_requirements,
            f"numpy=={self.numpy}",
            f"transformers=={self.transformers}",
            f"pytorch-lightning=={self.pytorch_lightning}",
            f"torchmetrics=={self.torchmetrics}",
            f"pycocotools=={self.pycocotools}",
            f"scipy=={self.scipy}",
        ]


_NO_TORCH_FOR_TRANSFORMERS = KnownFailure(
    reason="every transformers 5 that rfdetr allows asks for torch 2.4 or later and hides an older one, "
    "so that rfdetr cannot be imported",
    pattern=r"cannot import name 'BackboneConfigMixin' from 'transformers'",
)

_ITERATORS = KnownFailure(
    reason="Dynamo cannot follow the iterator of a module list here, so that two list comprehensions of rfdetr's "
    "two-stage head, and what resumes after them, run eager",
    pattern=r"transformer\.py:<listcomp>: .*(odict_iterator|dict_valueiterator)\) __next__",
    compiled=True,
    since=(1, 11),
)

# This torch counts frames that failed of which its metrics tell nothing.
_ITERATORS_UNTOLD = replace(_ITERATORS, pattern=rf"{_ITERATORS.pattern}|^no source line known$")

# Seen with backend="eager" too; with a plain loop in its place there is no mismatch (docs/compiling.md).
_GENERATOR = (
    "Dynamo up to torch 2.6 runs a generator to its end before list.extend takes from it, so that every bottleneck in "
    "rfdetr's C2f (models/backbone/projector.py:187) reads the same input"
)

# The lock is taken on CUDA only, so that the cpu lane's cases compile. Seen with this torch; others are not tried yet.
_LOCK = KnownFailure(
    reason="rfdetr's segmentation head takes a lock around its convolutions on CUDA (models/heads/segmentation.py:40), "
    "which Dynamo does not follow, so that two of its frames run eager",
    pattern=r"models/heads/segmentation\.py:(forward|sparse_forward): Unsupported: Unsupported context manager",
    compiled=True,
    since=(1, 11, 2),
    cases=r"seg-[a-z0-9]+-b\d.*",
    who="compiled segmentation cases of the gpu lane",
)

# torchvision: the release whose metadata asks for exactly this torch (0.29 asks for torch>=2.14 only).
# transformers: 5.1 to 5.14 need torch 2.4, 5.15 to 5.19 need 2.5, later ones 2.6; pip cannot see that.
# 2.4 takes the release that was seen to train with it; 2.5 not 5.19, which says 2.5 and needs torch.accelerator of 2.6.
MATRIX: dict[str, Pins] = {
    # torch 2.2 was built before numpy 2: its bridge to numpy is missing there.
    "2.2": Pins(torch="2.2.2", torchvision="0.17.2", numpy="1.26.4", known_failure=_NO_TORCH_FOR_TRANSFORMERS),
    "2.3": Pins(torch="2.3.1", torchvision="0.18.1", known_failure=_NO_TORCH_FOR_TRANSFORMERS),
    "2.4": Pins(
        torch="2.4.1",
        torchvision="0.19.1",
        transformers="5.1.0",
        known_failure=_ITERATORS_UNTOLD,
        known_mismatch=_GENERATOR,
    ),
    "2.5": Pins(
        torch="2.5.1", torchvision="0.20.1", transformers="5.15.0", known_failure=_ITERATORS, known_mismatch=_GENERATOR
    ),
    "2.6": Pins(torch="2.6.0", torchvision="0.21.0", known_failure=_ITERATORS, known_mismatch=_GENERATOR),
    "2.7": Pins(torch="2.7.1", torchvision="0.22.1"),
    "2.8": Pins(torch="2.8.0", torchvision="0.23.0"),
    "2.9": Pins(torch="2.9.1", torchvision="0.24.1"),
    "2.10": Pins(torch="2.10.0", torchvision="0.25.0"),
    "2.11": Pins(torch="2.11.0", torchvision="0.26.0", known_failure=_LOCK),
    "2.12": Pins(torch="2.12.1", torchvision="0.27.1"),
    "2.13": Pins(torch="2.13.0", torchvision="0.28.0"),
    "2.14": Pins(torch="2.14.1", torchvision="0.29.1"),
    "2.15": Pins(torch="2.15.0", torchvision="0.29.2"),
}


def pins_for(minor: str) -> Pins:
    """Return the pins of one torch minor.

    Raises:
        ValueError: no such minor; the message lists the known ones.
    """
    if minor not in MATRIX:
        msg = f"unknown torch minor {minor!r}; known: {', '.join(MATRIX)}"
        raise ValueError(msg)
    return MATRIX[minor]


def known_failure(minor: str, compiled: bool, rfdetr: str = DEFAULT_RFDETR, case_id: str = "") -> KnownFailure | None:
    """Return how a case, with compile on or not, is known to fail on this torch minor; None where it should work.

    Without a ``case_id`` the answer is of every case: what is known of some only is not told.
    """
    found = MATRIX[minor].known_failure if minor in MATRIX else None
    if found is None or (found.compiled and not compiled) or not re.fullmatch(found.cases or ".*", case_id):
        return None
    numbers = re.match(r"\d+(\.\d+)*", rfdetr)
    release = tuple(map(int, numbers[0].split("."))) if numbers else (0, 0)
    return found if release >= found.since else None


def matcher(known: KnownFailure | None) -> Callable[[str], bool]:
    """Return what tells whether a text is of the known failure; nothing is where none is known."""
    return lambda text: known is not None and re.search(known.pattern, text) is not None


def rfdetr_requirement(value: str, base: Path | None = None) -> str:
    """Turn a ``--rfdetr`` value into a pip requirement with what training needs.

    ``value`` is a release, the path of a local checkout (a relative one starts at ``base``, by default the
    current folder) or a git URL.

    Raises:
        ValueError: none of these, or a path that holds no checkout; the message says what is accepted.
    """
    value = value.strip()
    if _is_git_url(value):
        return f"rfdetr[{EXTRA}] @ {value if value.startswith('git+') else f'git+{value}'}"
    if re.fullmatch(r"\d+(\.\d+)*((a|b|rc)\d+)?(\.post\d+)?(\.dev\d+)?", value):
        return f"rfdetr[{EXTRA}]=={value}"
    if value.startswith((".", "/", "~")) or (value and Path(base or "", value).is_dir()):
        return _checkout_requirement(Path(base or "", Path(value).expanduser()).resolve())
    msg = f"--rfdetr {value!r} is not something to install; give {ACCEPTED}"
    raise ValueError(msg)


def _is_git_url(value: str) -> bool:
    return value.startswith("git+") or bool(re.match(r"(https|ssh)://\S+\.git(@\S+)?$", value))


def _checkout_requirement(path: Path) -> str:
    if not (path / "pyproject.toml").is_file():
        msg = f"--rfdetr {path}: no pyproject.toml there, so it is no checkout of rfdetr; give {ACCEPTED}"
        raise ValueError(msg)
    return f"rfdetr[{EXTRA}] @ {path.as_uri()}"
