"""Validators of settings, with the messages of those in Kafka's ``ConfigDef``.

A validator is called with a setting's name and its parsed value, which is None where the text could not be parsed, and
raises `ConfigException`.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Protocol

from tidelog_connect.configuration.values import ConfigException, value_text


class Validator(Protocol):
    """A check of one setting's parsed value."""

    def __call__(self, name: str, value: object) -> None:
        """Raise ConfigException if the value is not valid."""
        ...


@dataclass(frozen=True, slots=True)
class Range:
    """Numbers between two limits, which are included. None is no limit."""

    minimum: int | float | None = None
    maximum: int | float | None = None

    def __call__(self, name: str, value: object) -> None:
        """Raise ConfigException for null and numbers outside of the range."""
        if value is None:
            raise ConfigException.of(name, value, "Value must be non-null")
        assert isinstance(value, int | float)
        if self.minimum is not None and value < self.minimum:
            raise ConfigException.of(name, value, f"Value must be at least {value_text(self.minimum)}")
        if self.maximum is not None and value > self.maximum:
            raise ConfigException.of(name, value, f"Value must be no more than {value_text(self.maximum)}")


@dataclass(frozen=True, slots=True)
class ValidString:
    """One of some texts. In Kafka's words, null is none of them, unless None is among the texts."""

    texts: Sequence[str | None]

    def __call__(self, name: str, value: object) -> None:
        """Raise ConfigException for other texts."""
        if value not in self.texts:
            raise ConfigException.of(name, value, f"String must be one of: {', '.join(map(value_text, self.texts))}")


@dataclass(frozen=True, slots=True)
class CaseInsensitiveValidString:
    """One of some texts, in any case."""

    texts: Sequence[str]

    def __call__(self, name: str, value: object) -> None:
        """Raise ConfigException for other texts."""
        upper = [text.upper() for text in self.texts]
        if not isinstance(value, str) or value.upper() not in upper:
            raise ConfigException.of(name, value, f"String must be one of (case insensitive): {', '.join(upper)}")


@dataclass(frozen=True, slots=True)
class ValidList:
    """Lists of some texts."""

    texts: Sequence[str]

    def __call__(self, name: str, value: object) -> None:
        """Raise ConfigException for the first other element. Null is valid: it has an error of its own."""
        assert value is None or isinstance(value, list)
        for element in value or ():
            ValidString(self.texts)(name, element)


@dataclass(frozen=True, slots=True)
class NonNull:
    """Any value but null."""

    def __call__(self, name: str, value: object) -> None:
        """Raise ConfigException for null."""
        if value is None:
            raise ConfigException.of(name, value, "entry must be non null")


@dataclass(frozen=True, slots=True)
class NonEmptyString:
    """Texts with at least one character, and null."""

    def __call__(self, name: str, value: object) -> None:
        """Raise ConfigException for the empty text."""
        if value == "":
            raise ConfigException.of(name, value, "String must be non-empty")


@dataclass(frozen=True, slots=True)
class NonEmptyStringWithoutControlChars:
    """Texts without ISO control characters, and null: names of connectors."""

    def __call__(self, name: str, value: object) -> None:
        """Raise ConfigException for the empty text and texts with control characters."""
        if value is None:
            return
        text = str(value)
        if not text:
            raise ConfigException.of(name, value, "String may not be empty")
        controls = [str(code) for code in map(ord, text) if code < 0x20 or 0x7F <= code < 0xA0]
        if controls:
            message = "String may not contain control sequences but had the following ASCII chars: "
            raise ConfigException.of(name, value, message + ", ".join(controls))


@dataclass(frozen=True, slots=True)
class ListSize:
    """Lists with a limited number of elements."""

    maximum: int

    def __call__(self, name: str, value: object) -> None:
        """Raise ConfigException for longer lists."""
        assert value is None or isinstance(value, list)
        if value is not None and len(value) > self.maximum:
            raise ConfigException.of(name, value, f"exceeds maximum list size of [{self.maximum}].")


@dataclass(frozen=True, slots=True)
class KnownClass:
    """Names of classes that exist: those of plugins, in full or as an alias. Null is valid."""

    names: Collection[str]

    def __call__(self, name: str, value: object) -> None:
        """Raise ConfigException for other names."""
        if value is not None and value not in self.names:
            raise ConfigException.of(name, value, f"Class {value} could not be found.")


@dataclass(frozen=True, slots=True)
class Composite:
    """Several validators, in order."""

    validators: Sequence[Validator]

    def __call__(self, name: str, value: object) -> None:
        """Raise the first error of a validator."""
        for validator in self.validators:
            validator(name, value)
