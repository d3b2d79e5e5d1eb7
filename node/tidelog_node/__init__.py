"""Tidelog's node."""
