"""Options that commands share, and the profiles that give them values."""
