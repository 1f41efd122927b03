"""Build the reduced model with as many query groups as rfdetr ships: what is done once a group shows by its number.

Imported by the runs of a replay, on both sides, before anything is built.
"""

from perf import rfdetr_configs

rfdetr_configs._REDUCED["group_detr"] = 13
