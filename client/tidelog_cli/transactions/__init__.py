"""The commands about transactions."""
