"""The quorum's replicated log: the engine, its listener's interface, and its configuration."""
