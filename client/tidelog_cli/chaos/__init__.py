"""``tidelog chaos``."""
