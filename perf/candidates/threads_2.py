"""Two CPU threads for the ops of the main process: what OMP_NUM_THREADS=2 does, without a new environment."""

import torch

torch.set_num_threads(2)
