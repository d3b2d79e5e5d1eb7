"""``tidelog sql``."""
