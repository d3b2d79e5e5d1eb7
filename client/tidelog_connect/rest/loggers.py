"""Levels of this process's loggers, with the names of Log4j's levels."""

from __future__ import annotations

import logging
import time
from typing import Any

_ROOT = "root"
_LEVELS = {
    "ALL": 1,
    "TRACE": 5,
    "DEBUG": logging.DEBUG,
    "INFO": logging.INFO,
    "WARN": logging.WARNING,
    "ERROR": logging.ERROR,
    "FATAL": logging.CRITICAL,
    "OFF": logging.CRITICAL + 10,
}


class Loggers:
    """Levels that were set, with the times of their changes."""

    def __init__(self) -> None:
        self._modified_ms: dict[str, int] = {}

    def listed(self) -> dict[str, dict[str, Any]]:
        """Return the loggers whose level was set."""
        return {name: self.level(name) for name in sorted(self._modified_ms)}

    def is_known(self, name: str) -> bool:
        """Tell whether there is a logger of this name."""
        return name == _ROOT or name in self._modified_ms or name in logging.root.manager.loggerDict

    def level(self, name: str) -> dict[str, Any]:
        """Return a logger's level, and the time at which it was set, in milliseconds since 1970."""
        level = _logger(name).getEffectiveLevel()
        text = max((value, text) for text, value in _LEVELS.items() if value <= max(level, 1))[1]
        return {"level": text, "last_modified": self._modified_ms.get(name)}

    def set_level(self, name: str, level: str) -> list[str]:
        """Set the level of a logger, and return its name and those of the loggers below it that have had their own."""
        below = [each for each in self._modified_ms if each == name or each.startswith(f"{name}.")]
        for each in {name, *below}:
            _logger(each).setLevel(_LEVELS[level])
            self._modified_ms[each] = int(time.time() * 1000)
        return sorted({name, *below})


def _logger(name: str) -> logging.Logger:
    return logging.getLogger(None if name == _ROOT else name)
