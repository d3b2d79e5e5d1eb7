"""The producer's decisions, without I/O, clock or randomness."""
