"""Messages and services generated from ``proto/tidelog/v1``; do not edit, run ``make proto``."""
