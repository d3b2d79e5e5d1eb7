"""``tidelog bench``."""
