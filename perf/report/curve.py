"""The curve of a training as a picture: loss and mAP over the steps. Needs matplotlib, which comes with rfdetr."""

from __future__ import annotations

import io
from pathlib import Path
from typing import TYPE_CHECKING

from perf.record import write_atomically

if TYPE_CHECKING:
    from perf.probes.convergence import Curve


def draw(curve: Curve, path: Path) -> None:
    """Draw ``curve`` into the SVG file ``path``; nothing where there is no step.

    Raises:
        ImportError: there is no matplotlib.
    """
    if not curve.losses:
        return
    from matplotlib.figure import Figure

    figure = Figure(figsize=(7, 4), layout="constrained")
    losses = figure.add_subplot(xlabel="step", ylabel="loss")
    losses.plot(range(1, len(curve.losses) + 1), curve.losses, linewidth=0.8, color="tab:blue")
    scores = losses.twinx()
    scores.set(ylabel="mAP", ylim=(0, 1))
    for axes, colour in ((losses, "tab:blue"), (scores, "tab:orange")):
        axes.yaxis.label.set_color(colour)
    steps = [one.step for one in curve.evaluations]
    scores.plot(steps, [one.scores.map for one in curve.evaluations], marker="o", color="tab:orange")
    picture = io.StringIO()
    figure.savefig(picture, format="svg")
    write_atomically(path, picture.getvalue())
