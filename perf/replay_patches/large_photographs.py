"""Have the input probe read the large photographs of each format and nothing else: the rest takes three times as long.

Imported by the runs of a replay, on both sides, before anything is measured.
"""

from collections.abc import Iterator

from perf.photos import write_photos
from perf.probes.input_pipeline import LARGE, InputProbe
from perf.record import Signal


def measure(probe: InputProbe) -> Iterator[list[Signal]]:
    """Yield what a sample costs to read, by image format."""
    yield probe._formats("_large", write_photos(probe.scratch, LARGE))


InputProbe.measure = measure  # type: ignore[method-assign, assignment]
