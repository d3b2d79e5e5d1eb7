"""``tidelog quota``."""
