"""``tidelog user``."""
