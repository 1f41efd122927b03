"""Gives the GPU 5 % more work in each training step: 0.83 of Nano's 16.65 ms on an H200."""

from perf.rfdetr_slowdown import slow_down

slow_down(host_seconds=0.0, gpu_seconds=0.000833)
