"""``tidelog link`` and ``tidelog mirror``."""
