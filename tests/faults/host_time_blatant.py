"""Makes each training step twice as long for the host: 500 ms of the reduced Nano's 500."""

from perf.rfdetr_slowdown import slow_down

slow_down(host_seconds=0.5, gpu_seconds=0.0)
