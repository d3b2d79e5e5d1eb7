"""The quotas that a node enforces, without I/O and clock."""
