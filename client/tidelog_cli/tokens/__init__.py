"""``tidelog token``."""
