"""``tidelog cluster health`` and ``tidelog cluster doctor``."""
