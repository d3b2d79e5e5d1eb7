"""A consumer's membership in a group by the classic protocol or KIP-848's, without I/O or a clock."""
