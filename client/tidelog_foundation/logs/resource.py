"""The levels of a process's loggers as settings of the resource BROKER_LOGGER (KIP-412).

A node or controller changes its own levels only, at once, and forgets them when it ends. Names, operations and errors
are those of Kafka's ``RuntimeLoggerManager``.
"""

from __future__ import annotations

import logging

from tidelog_foundation.errors import ErrorCode, error_for
from tidelog_foundation.logs.levels import effective_levels, set_level, unset_level
from tidelog_foundation.requests.configs import (
    ConfigOperation,
    ConfigOperationType,
    ConfigResourceChange,
    ConfigSource,
    DescribedConfig,
)

logger = logging.getLogger(__name__)

_REFUSED = (ConfigOperationType.APPEND, ConfigOperationType.SUBTRACT)


def describe_levels(owner_id: int, name: str, owner: str = "node") -> list[DescribedConfig]:
    """Return a description of the level in effect of each logger. ``owner`` is node or controller.

    Raises:
        TidelogError: INVALID_REQUEST, ``name`` is not the id of this process.
    """
    _check_own(owner_id, name, owner)
    return [_described(logger_name, level) for logger_name, level in effective_levels().items()]


def alter_levels(owner_id: int, change: ConfigResourceChange, *, validate_only: bool, owner: str = "node") -> None:
    """Change levels: all of them, or none if one is refused.

    Raises:
        TidelogError: INVALID_REQUEST, the resource is not this process, an operation is for lists, or all levels would
            be replaced; INVALID_CONFIG, a logger or level does not exist.
    """
    _check_own(owner_id, change.resource.name, owner)
    if change.replaces_all:
        raise error_for(ErrorCode.INVALID_REQUEST, "levels of loggers change one by one, by IncrementalAlterConfigs")
    for operation in change.operations:
        _apply(operation, validate_only=True)
    if validate_only:
        return
    for operation in change.operations:
        _apply(operation, validate_only=False)
        logger.warning("The level of the logger %s is now %s", operation.name, operation.value or "that above it")


def _described(logger_name: str, level: str) -> DescribedConfig:
    return DescribedConfig(
        name=logger_name,
        value=level,
        source=ConfigSource.DYNAMIC_BROKER_LOGGER_CONFIG,
        is_read_only=False,
        is_sensitive=False,
        synonyms=(),
        documentation="",
        type="STRING",
    )


def _apply(operation: ConfigOperation, *, validate_only: bool) -> None:
    if operation.type in _REFUSED:
        text = f"the operation {operation.type.name} on {operation.name!r} is for lists, not for levels of loggers"
        raise error_for(ErrorCode.INVALID_REQUEST, text)
    if operation.type == ConfigOperationType.DELETE:
        unset_level(operation.name, validate_only=validate_only)
    else:
        set_level(operation.name, operation.value, validate_only=validate_only)


def _check_own(owner_id: int, name: str, owner: str) -> None:
    if name != str(owner_id):
        text = f"{owner} {owner_id} has its own loggers only, not those of {name!r}"
        raise error_for(ErrorCode.INVALID_REQUEST, text)
