"""Faults against a cluster, the history of its clients meanwhile, and the check of that history."""
