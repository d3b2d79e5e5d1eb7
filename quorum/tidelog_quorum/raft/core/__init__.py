"""Raft without I/O: events in, commands out."""
