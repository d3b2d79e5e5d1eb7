"""The version of this package, with confluent-kafka's functions for it."""

from __future__ import annotations


def version() -> str:
    """Return the version of Tidelog."""
    from importlib import metadata  # costs 20 ms, which clients without telemetry need not pay

    return metadata.version("tidelog")


def libversion() -> tuple[str, int]:
    """Return the version of Tidelog, also as the number 0xMMmmppff in librdkafka's format."""
    text = version()
    major, minor, patch = (int(part) for part in text.split(".")[:3])
    return text, major << 24 | minor << 16 | patch << 8 | 0xFF
