"""The settings of a process's log, the same for nodes and controllers."""

from __future__ import annotations

import logging
import sys
from collections.abc import Mapping
from typing import Final

from tidelog_foundation.config.settings import config_keys, int_setting, parse_config, setting
from tidelog_foundation.config.validators import at_least, one_of
from tidelog_foundation.dataclass import dataclass
from tidelog_foundation.logs.levels import LEVELS, ROOT
from tidelog_foundation.logs.lines import JsonLines, LogLines

_FORMATS: Final = {"text": LogLines, "json": JsonLines}


def _parse_levels(text: str) -> dict[str, str]:
    """Return the level of each logger in ``INFO,tidelog_node.log=DEBUG``.

    Raises:
        ValueError: a level does not exist, or a logger has two.
    """
    levels: dict[str, str] = {}
    for part in text.split(","):
        name, _, level = part.strip().rpartition("=")
        name = name.strip() or ROOT
        if level.strip() not in LEVELS:
            raise ValueError(f'"{level.strip()}" is not one of {", ".join(LEVELS)}')
        if name in levels:
            raise ValueError(f'the logger "{name}" has two levels')
        levels[name] = level.strip()
    return levels


# Not slotted: the settings of nodes and of controllers inherit it beside a class with slots.
@dataclass(frozen=True, kw_only=True)
class LoggingSettings:
    """The log, which goes to the standard error."""

    logging_format: str = setting(
        "text", "The form of the log: text, or json for one JSON object per line.", one_of(*_FORMATS)
    )
    logging_level: str = setting(
        "INFO",
        f"The level of the log, one of {', '.join(LEVELS)}, and levels of single loggers or packages: "
        "INFO,tidelog_node.log=DEBUG. IncrementalAlterConfigs on a BROKER_LOGGER changes levels of a running process.",
        _parse_levels,
        config_type="LIST",
    )
    logging_slow_request_ms: int = int_setting(
        1_000,
        "A request that takes this process longer than so many milliseconds has a line in the log with its phases. The "
        "wait that a client asks for, as of a fetch for records, does not count. 0 or -1 writes none.",
        at_least(-1),
    )


def start_logging(properties: Mapping[str, str]) -> None:
    """Write the log to the standard error, as the settings among the properties say.

    Raises:
        ConfigError: a setting is invalid.
    """
    given = {key: properties[key] for key in config_keys(LoggingSettings) if key in properties}
    settings = parse_config(LoggingSettings, given)
    lines = logging.StreamHandler(sys.stderr)
    lines.setFormatter(_FORMATS[settings.logging_format]())
    logging.basicConfig(handlers=[lines], force=True)
    for name, level in _parse_levels(settings.logging_level).items():
        # Modules that are imported later bring loggers that do not exist yet.
        logging.getLogger(None if name == ROOT else name).setLevel(LEVELS[level])
