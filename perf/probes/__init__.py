"""Probes: one module a question, each answering it about one case inside a run."""
