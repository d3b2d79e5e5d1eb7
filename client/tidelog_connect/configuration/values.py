"""Parsed values of settings: from text, and as Kafka prints them.

The rules are those of Java, on which Kafka's ``ConfigDef.parseType`` and ``convertToString`` rely: the white space that
``String.trim`` removes, and the numbers that ``Integer.parseInt`` and ``Double.parseDouble`` read.
"""

from __future__ import annotations

import re
from decimal import Decimal
from enum import StrEnum
from typing import assert_never

from tidelog_foundation.errors import ConfigError


class ConfigException(ConfigError):
    """An invalid value of a setting, in Kafka's words."""

    @classmethod
    def of(cls, name: str, value: object, message: str) -> ConfigException:
        """Return the error of a setting's value."""
        return cls(f"Invalid value {value_text(value)} for configuration {name}: {message}")


class Password(str):
    """A value that is printed as ``[hidden]``."""

    __slots__ = ()

    HIDDEN = "[hidden]"

    @property
    def secret(self) -> str:
        """The text itself."""
        return str.__str__(self)

    def __str__(self) -> str:
        return self.HIDDEN

    def __repr__(self) -> str:
        return self.HIDDEN

    def __format__(self, format_spec: str) -> str:
        return self.HIDDEN


class Type(StrEnum):
    """Types of settings, as Connect's REST API names them."""

    BOOLEAN = "BOOLEAN"
    STRING = "STRING"
    INT = "INT"
    SHORT = "SHORT"
    LONG = "LONG"
    DOUBLE = "DOUBLE"
    LIST = "LIST"
    CLASS = "CLASS"
    PASSWORD = "PASSWORD"


_BITS = {Type.SHORT: 16, Type.INT: 32, Type.LONG: 64}
_INTEGER = re.compile(r"[+-]?[0-9]+")
_DECIMAL = re.compile(r"[+-]?(NaN|Infinity|(([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?)[fFdD]?)")
_HEXADECIMAL = re.compile(r"[+-]?0[xX]([0-9a-fA-F]+\.?[0-9a-fA-F]*|\.[0-9a-fA-F]+)[pP][+-]?[0-9]+[fFdD]?")
_COMMA = re.compile(r"[ \t\n\v\f\r]*,[ \t\n\v\f\r]*")
_TRIMMED = "".join(map(chr, range(0x21)))


def parse_value(name: str, value: str | None, kind: Type) -> object:
    """Return a setting's value: a bool, int, float, str, list of str, or Password. None stays None.

    The name of a class stays text; `validators.KnownClass` checks it.

    Raises:
        ConfigException: the text has no value of this type.
    """
    if value is None:
        return None
    trimmed = value.strip(_TRIMMED)
    match kind:
        case Type.BOOLEAN:
            return _boolean(name, value, trimmed.lower())
        case Type.STRING | Type.CLASS:
            return trimmed
        case Type.PASSWORD:
            return Password(trimmed)
        case Type.INT | Type.SHORT | Type.LONG:
            return _integer(name, value, trimmed, kind)
        case Type.DOUBLE:
            return _double(name, value, trimmed)
        case Type.LIST:
            return _COMMA.split(trimmed) if trimmed else []
        case _:
            assert_never(kind)


def _boolean(name: str, value: str, lower: str) -> bool:
    if lower not in ("true", "false"):
        raise ConfigException.of(name, value, "Expected value to be either true or false")
    return lower == "true"


def _integer(name: str, value: str, trimmed: str, kind: Type) -> int:
    limit = 1 << (_BITS[kind] - 1)
    # No integer of 64 bits has more digits than this, but for leading zeros.
    if not _INTEGER.fullmatch(trimmed) or len(trimmed) > 1000 or not -limit <= int(trimmed) < limit:
        raise ConfigException.of(name, value, f"Not a number of type {kind}")
    return int(trimmed)


def _double(name: str, value: str, trimmed: str) -> float:
    if _DECIMAL.fullmatch(trimmed):
        return float(trimmed if trimmed.endswith("y") else trimmed.rstrip("fFdD"))
    if _HEXADECIMAL.fullmatch(trimmed):
        return float.fromhex(re.sub("(?<=[0-9])[fFdD]$", "", trimmed))
    raise ConfigException.of(name, value, f"Not a number of type {Type.DOUBLE}")


def value_text(value: object) -> str:
    """Return a value as Java prints it, which is how Kafka's messages contain it."""
    if value is None:
        return "null"
    if isinstance(value, Password):
        return Password.HIDDEN
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, float):
        return double_text(value)
    if isinstance(value, list | tuple):
        return f"[{', '.join(map(value_text, value))}]"
    return str(value)


def setting_text(value: object) -> str | None:
    """Return a parsed value as Connect's REST API reports it (Kafka's ``ConfigDef.convertToString``)."""
    if value is None:
        return None
    if isinstance(value, list | tuple):
        return ",".join(map(value_text, value))
    return value_text(value)


def double_text(value: float) -> str:
    """Return a double as Java's ``Double.toString`` does since JDK 19: the shortest decimal that is this double."""
    if value != value:
        return "NaN"
    if value in (float("inf"), float("-inf")):
        return "Infinity" if value > 0 else "-Infinity"
    if value == 0:
        return "-0.0" if str(value).startswith("-") else "0.0"
    shortest = Decimal(repr(value))
    sign, digits, _ = shortest.as_tuple()
    if len(digits) == 1:
        # Java prints at least two digits, those nearest to the double.
        shortest = Decimal(f"{value:.1e}")
    if 1e-3 <= abs(value) < 1e7:
        text = f"{shortest.normalize():f}"
        return text if "." in text else f"{text}.0"
    _, digits, _ = shortest.normalize().as_tuple()
    text = "".join(map(str, digits))
    return f"{'-' if sign else ''}{text[0]}.{text[1:] or '0'}E{shortest.adjusted()}"
