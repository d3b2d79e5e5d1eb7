"""Copies of the metadata log: backups, and new quorums that begin with their content."""
