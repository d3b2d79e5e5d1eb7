"""The metrics that a client pushes to the cluster if a subscription asks for them (KIP-714)."""
