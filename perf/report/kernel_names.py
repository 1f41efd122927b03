"""Names of GPU kernels -> what a reader tells them apart by: a template's arguments take five lines and say one word.

The records keep them whole.
"""

from __future__ import annotations

import itertools
import re
from collections import Counter
from collections.abc import Sequence

# What stands before the arguments: of a template, or of a function.
_HEAD = re.compile(r"(?:void )?(?:at::native::)?([\w:]+)\s*([<(].*)", re.DOTALL)
# Of the arguments the words that say what is done, and on what; all else is how it is launched.
_WORD = re.compile(r"[A-Za-z_]\w*")
_DONE = re.compile(r"\w*functor\w*|\w+_kernel(_cuda)?|plus|minus|multiplies|divides", re.IGNORECASE)
_TYPES = frozenset({"float", "double", "BFloat16", "Half", "half", "__half", "__nv_bfloat16", "long", "int64_t"})
# A template's first arguments, where they are numbers: block sizes, widths of a vector.
_NUMBERS = re.compile(r"<(\d+u?(?:, \d+u?)*)")


def short_names(names: Sequence[str]) -> list[str]:
    """Return a short name for each of ``names``, which differ; the short ones differ too."""
    short = [_short(name) for name in names]
    often = Counter(short)
    told = [_numbered(one, name) if often[one] > 1 else one for one, name in zip(short, names, strict=True)]
    return _apart(told)


def _short(name: str) -> str:
    """Return ``elementwise_kernel direct_copy float`` of a kernel of 300 characters; a name without arguments as is."""
    found = _HEAD.fullmatch(name)
    if found is None:
        return name
    head, arguments = found.groups()
    words = [word for word in _WORD.findall(arguments) if _DONE.fullmatch(word) or word in _TYPES]
    return " ".join([head, *dict.fromkeys(re.sub(r"_kernel(_cuda)?$", "", word) for word in words)])


def _numbered(short: str, name: str) -> str:
    numbers = _NUMBERS.search(name)
    head, _, rest = short.partition(" ")
    return f"{head}<{numbers[1]}> {rest}".strip() if numbers else short


def _apart(short: Sequence[str]) -> list[str]:
    """Return names that are equal with a number each, in their order."""
    often, taken = Counter(short), set(short)
    found = []
    for name in short:
        told = name
        if often[name] > 1:
            told = next(one for n in itertools.count(1) if (one := f"{name} #{n}") not in taken)
            taken.add(told)
        found.append(told)
    return found
