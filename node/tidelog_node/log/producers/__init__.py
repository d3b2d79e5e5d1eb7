"""Idempotent and transactional producers of a partition: the rules, the snapshots, the markers."""
