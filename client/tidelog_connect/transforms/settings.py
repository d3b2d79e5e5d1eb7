"""The settings that several transforms share, and their validators (pure)."""

from __future__ import annotations

import re
import warnings
from dataclasses import dataclass

from tidelog_connect.configuration import ConfigDef, ConfigException, Importance, Type

REPLACE_NULL = "replace.null.with.default"


def with_replace_null(definition: ConfigDef) -> ConfigDef:
    """Return a definition with the setting ``replace.null.with.default`` (KIP-1040)."""
    documentation = "Whether a field that is null and has a default gets the default. When false, the field stays null."
    return definition.define(REPLACE_NULL, Type.BOOLEAN, True, Importance.MEDIUM, documentation)


def strings(value: object) -> list[str]:
    """Return a setting of type LIST."""
    assert isinstance(value, list)
    return value


def text(value: object) -> str:
    """Return a setting of type STRING that is not null."""
    assert isinstance(value, str)
    return value


def text_or_none(value: object) -> str | None:
    """Return a setting of type STRING."""
    assert value is None or isinstance(value, str)
    return value


@dataclass(frozen=True, slots=True)
class NonEmptyList:
    """Lists with at least one element."""

    def __call__(self, name: str, value: object) -> None:
        """Raise ConfigException for null and the empty list."""
        if not value:
            raise ConfigException.of(name, value, "Empty list")


@dataclass(frozen=True, slots=True)
class ValidRegex:
    """Regular expressions.

    Java's and Python's differ. What both know is compiled; a part that Python lacks is replaced by one that has the
    same structure. An expression of Java that this rejects can be written in another way.
    """

    def __call__(self, name: str, value: object) -> None:
        """Raise ConfigException for text that is no regular expression."""
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", FutureWarning)
                re.compile(_as_python(str(value)))
        except re.error as error:
            raise ConfigException.of(name, value, f"Invalid regex: {error}") from None


_QUOTED = re.compile(r"\\Q(.*?)(?:\\E|$)", re.DOTALL)
_CLASSES = re.compile(r"\\[pP](?:\{[^}]*\}|\w)|\\[hHvVRX]")
_NAMED = re.compile(r"\(\?<(?=[a-zA-Z])")
_REFERENCE = re.compile(r"\\k<(\w+)>")


def _as_python(java: str) -> str:
    plain = _QUOTED.sub(lambda found: re.escape(found[1]), java)
    plain = _NAMED.sub("(?P<", _CLASSES.sub(r"\\w", plain))
    return _REFERENCE.sub(r"(?P=\1)", plain).replace(r"\z", r"\Z").replace(r"\G", "")
