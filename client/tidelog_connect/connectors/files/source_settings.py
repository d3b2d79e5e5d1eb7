"""The settings of FilesSource, named as those of the sink and of connectors that read folders of spooled files."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from tidelog_connect.configuration import (
    NO_DEFAULT_VALUE,
    ConfigDef,
    ConfigException,
    Importance,
    NonEmptyString,
    Range,
    Type,
    ValidString,
)
from tidelog_connect.connectors.files.formats import FORMATS, format_name

POLICIES = ("NONE", "DELETE", "MOVE")
_FORMATS = [name for name, each in FORMATS.items() if not each.is_table]


def source_settings() -> ConfigDef:
    """Return the settings of FilesSource."""
    found, high, medium = ConfigDef(), Importance.HIGH, Importance.MEDIUM
    required = NO_DEFAULT_VALUE
    for name, kind, default, importance, text, validator in (
        ("path", Type.STRING, required, high, "The folder to read: a path, or a URI of Hadoop.", NonEmptyString()),
        ("format.class", Type.STRING, required, high, f"The format: {', '.join(_FORMATS)}.", _format),
        ("topic", Type.STRING, required, high, "The topic to write.", NonEmptyString()),
        ("input.file.pattern", Type.STRING, ".*", high, "A regular expression of the whole names of files.", _pattern),
        ("schema", Type.STRING, "", high, "The fields of JSON and CSV, such as id BIGINT, name STRING.", None),
        ("input.path.walk.recursively", Type.BOOLEAN, "false", medium, "Whether folders in the folder are read.", None),
        ("max.files.per.batch", Type.INT, "1000", medium, "The most files in a batch.", Range(1, 100_000)),
        ("max.bytes.per.batch", Type.LONG, "1073741824", medium, "The most bytes in a batch of several.", Range(1)),
        ("max.tracked.files", Type.INT, "100000", medium, "The most files with an offset.", Range(1, 1_000_000)),
        ("file.minimum.age.ms", Type.LONG, "0", medium, "The age at which a file is read.", Range(0)),
        (
            "cleanup.policy",
            Type.STRING,
            "NONE",
            medium,
            "What becomes of a file once its records are committed: NONE, DELETE, or MOVE to finished.path.",
            ValidString(POLICIES),
        ),
        (
            "finished.path",
            Type.STRING,
            "",
            medium,
            "The folder for files that are read.",
            None,
        ),
    ):
        found.define(name, kind, default, importance, text, validator=validator)
    return found


def check(settings: Mapping[str, Any]) -> dict[str, str]:
    """Return the errors of settings that do not fit each other, by their names."""
    if (settings["cleanup.policy"] == "MOVE") != bool(settings["finished.path"]):
        return {"finished.path": "cleanup.policy=MOVE requires finished.path, and others do not take it"}
    below = f"{settings['finished.path'].rstrip('/')}/".startswith(f"{settings['path'].rstrip('/')}/")
    if settings["finished.path"] and below and settings["input.path.walk.recursively"]:
        return {"finished.path": "Files that are read would be read again: the folder is in path"}
    return {}


def _format(name: str, value: object) -> None:
    if value is not None and format_name(str(value)) not in _FORMATS:
        raise ConfigException.of(name, value, f"String must be one of: {', '.join(_FORMATS)}")


def _pattern(name: str, value: object) -> None:
    try:
        re.compile(str(value))
    except re.error as error:
        raise ConfigException.of(name, value, f"Not a regular expression: {error}") from None
