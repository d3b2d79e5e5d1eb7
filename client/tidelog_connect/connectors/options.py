"""Settings ``option.KEY``: options of Spark's readers and writers."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

_PREFIX = "option."


def is_option(key: str) -> bool:
    """Tell whether a setting is an option. The path has a setting of its own."""
    return key.startswith(_PREFIX) and key.removeprefix(_PREFIX).lower() not in ("", "path")


def options_of(settings: Mapping[str, Any]) -> dict[str, str]:
    """Return the options by their keys."""
    return {key.removeprefix(_PREFIX): str(value) for key, value in settings.items() if is_option(key)}
