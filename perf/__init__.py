"""Performance regression suite for training RF-DETR."""
