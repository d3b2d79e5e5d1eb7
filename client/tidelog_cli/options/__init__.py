"""Options that commands share, and the profiles that provide their values."""
