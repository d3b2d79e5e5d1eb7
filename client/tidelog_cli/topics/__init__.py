"""``tidelog topic``."""
