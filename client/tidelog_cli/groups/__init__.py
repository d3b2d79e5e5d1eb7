"""``tidelog group``."""
