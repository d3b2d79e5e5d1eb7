"""A consumer's membership in a group, without I/O or a clock: the classic protocol and that of KIP-848."""
