"""Faults against a cluster, the history of what its clients saw meanwhile, and the check of that history."""
