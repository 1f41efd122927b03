"""The matcher assigns every image 50 times."""

from typing import Any

from rfdetr.models.matcher import HungarianMatcher

TIMES = 50
_assign = HungarianMatcher._assign_compact_cost_matrix


def assign(*args: Any, **kwargs: Any) -> Any:
    for _ in range(TIMES - 1):
        _assign(*args, **kwargs)
    return _assign(*args, **kwargs)


HungarianMatcher._assign_compact_cost_matrix = staticmethod(assign)
