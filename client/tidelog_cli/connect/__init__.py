"""``tidelog connect`` and ``tidelog connector``."""
