"""The dense losses of all layers in one compiled function, whether the model is compiled or not; matching stays eager.

rfdetr 1.11 does it by itself where the model compiles at one size; here an eager model, and one compiled with symbolic
shapes, gets it too. Under bf16 autocast Inductor keeps in float32 what eager rounds after each op, so that the
classification loss is nearer to float64 than eager's.
"""

from typing import Any

from rfdetr.models.criterion import SetCriterion

from perf.candidates import required

required(SetCriterion, "enable_compiled_detection_losses", "_get_batched_detection_losses")
_init = SetCriterion.__init__


def start(self: SetCriterion, *args: Any, **kwargs: Any) -> None:
    """Build the criterion and switch its batched losses on."""
    _init(self, *args, **kwargs)
    self.enable_compiled_detection_losses()


SetCriterion.__init__ = start
