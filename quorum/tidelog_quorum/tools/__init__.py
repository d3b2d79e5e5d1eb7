"""Offline tools for a controller's files; the client's command line finds them by ``tidelog.quorum.commands``."""
