"""Tidelog's quorum."""
