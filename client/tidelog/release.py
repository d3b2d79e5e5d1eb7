"""The version of this package, with confluent-kafka's functions for it."""

from __future__ import annotations

from importlib import metadata


def version() -> str:
    """Return the version of Tidelog."""
    return metadata.version("tidelog")


def libversion() -> tuple[str, int]:
    """Return the version of Tidelog, also as the number 0xMMmmppff in librdkafka's format."""
    text = version()
    major, minor, patch = (int(part) for part in text.split(".")[:3])
    return text, major << 24 | minor << 16 | patch << 8 | 0xFF
