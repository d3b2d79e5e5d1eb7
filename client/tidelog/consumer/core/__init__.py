"""The consumer's decisions, without I/O, clock or randomness."""
