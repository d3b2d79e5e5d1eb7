"""The levels of a process's loggers, which change while it runs (KIP-412).

A logger is known once a module has it, and so are the packages above it, whose level holds for all loggers below
without one of their own. Changes are lost when the process ends.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Final

from tidelog_foundation.errors import ErrorCode, error_for

ROOT: Final = "root"
"""The name of the logger above all others."""
LEVELS: Final[Mapping[str, int]] = {
    "FATAL": logging.CRITICAL,
    "ERROR": logging.ERROR,
    "WARN": logging.WARNING,
    "INFO": logging.INFO,
    "DEBUG": logging.DEBUG,
    "TRACE": 5,
}
"""Kafka's names of levels, with their numbers in Python."""


def effective_levels() -> dict[str, str]:
    """Return the level in effect of each known logger, by name in order."""
    names = [ROOT, *sorted(logging.root.manager.loggerDict)]
    return {name: _name(_effective(name)) for name in names}


def set_level(name: str, level: str, *, validate_only: bool = False) -> None:
    """Set the level of a logger.

    Raises:
        TidelogError: INVALID_CONFIG, the logger or the level does not exist.
    """
    _check_exists(name)
    if level not in LEVELS:
        text = f'invalid level "{level}" of the logger "{name}": must be one of {", ".join(LEVELS)}'
        raise error_for(ErrorCode.INVALID_CONFIG, text)
    if not validate_only:
        _logger(name).setLevel(LEVELS[level])


def unset_level(name: str, *, validate_only: bool = False) -> None:
    """Give a logger the level of the one above it.

    Raises:
        TidelogError: INVALID_CONFIG, the logger does not exist; INVALID_REQUEST, it is the root.
    """
    _check_exists(name)
    if name == ROOT:
        raise error_for(ErrorCode.INVALID_REQUEST, f'the level of the logger "{ROOT}" cannot be removed, only set')
    if not validate_only:
        _logger(name).setLevel(logging.NOTSET)


def _check_exists(name: str) -> None:
    if name != ROOT and name not in logging.root.manager.loggerDict:
        raise error_for(ErrorCode.INVALID_CONFIG, f'there is no logger "{name}"')


def _logger(name: str) -> logging.Logger:
    return logging.root if name == ROOT else logging.getLogger(name)


def _effective(name: str) -> int:
    """Return the level in effect, without turning a package's placeholder into a logger."""
    found = logging.root.manager.loggerDict.get(name)
    while not isinstance(found, logging.Logger):
        name = name.rpartition(".")[0]
        if not name or name == ROOT:
            return logging.root.level
        found = logging.root.manager.loggerDict.get(name)
    return found.getEffectiveLevel()


def _name(level: int) -> str:
    """Return Kafka's name of the most severe level that is not above this one."""
    return next((name for name, number in LEVELS.items() if number <= level), "TRACE")
