"""The declaration of settings as fields of frozen dataclasses, and their parsing from Kafka's dotted keys.

``replica_lag_time_max_ms: int = setting(30_000, "...")`` declares the key ``replica.lag.time.max.ms``. An unknown
key, a value of the wrong type and a value out of range raise :class:`~tidelog_foundation.errors.ConfigError` with the
key, the value and the requirement.
"""

from __future__ import annotations

import dataclasses
import functools
import math
import typing
from collections.abc import Iterable, Mapping
from typing import Any, TypeVar

from tidelog_foundation.config.validators import Validator
from tidelog_foundation.dataclass import dataclass
from tidelog_foundation.errors import ConfigError

T = TypeVar("T")
_METADATA = "tidelog"
REQUIRED: Any = dataclasses.MISSING
HIDDEN = "[hidden]"
"""The text in place of a secret."""
_BITS = {"SHORT": 16, "INT": 32, "LONG": 64}
_HINTS: Mapping[str, type] = {"SHORT": int, "INT": int, "LONG": int, "DOUBLE": float, "BOOLEAN": bool}


class ProvidedText(str):
    """A setting's value from a config provider. Its ``repr``, error messages and descriptions do not show it."""

    __slots__ = ()

    def __repr__(self) -> str:
        return HIDDEN


@dataclass(frozen=True, slots=True)
class SettingInfo:
    """A setting's entry in the reference page."""

    key: str
    type: str
    default: object
    doc: str
    dynamic: bool
    secret: bool
    config_type: str
    """Kafka's name for the type: BOOLEAN, STRING, SHORT, INT, LONG, DOUBLE, LIST or PASSWORD."""
    attribute: str
    """The field with the value."""
    aliases: tuple[str, ...]
    """Other spellings of the key."""

    @property
    def default_text(self) -> str | None:
        """The default in a properties file's format; None without a default."""
        return None if self.default is dataclasses.MISSING else format_value(self.default)


@dataclass(frozen=True, slots=True)
class _Declaration:
    doc: str
    check: Validator | None
    dynamic: bool
    secret: bool
    key: str | None
    aliases: tuple[str, ...]
    config_type: str | None


def setting(
    default: Any = REQUIRED,
    doc: str = "",
    check: Validator | None = None,
    *,
    dynamic: bool = False,
    secret: bool = False,
    key: str | None = None,
    aliases: tuple[str, ...] = (),
    config_type: str | None = None,
) -> Any:
    """Declare a field of a config dataclass.

    Without ``default`` the key is required; ``None`` makes it optional (the annotation is ``X | None``). ``check`` runs
    on the parsed value. ``dynamic`` means that it can change at run time; ``repr`` hides a ``secret``. ``key``
    overrides the key derived from the field's name; ``aliases`` are other spellings. ``config_type`` is Kafka's type if
    it differs from the annotation's; a number of type INT or SHORT must fit its range.
    """
    assert doc, "a setting needs a text"
    declaration = _Declaration(doc, check, dynamic, secret, key, aliases, config_type)
    return dataclasses.field(default=default, repr=not secret, metadata={_METADATA: declaration})


def dynamic_setting(default: Any, doc: str, check: Validator | None = None, *, config_type: str | None = None) -> Any:
    """Declare a setting that can change at run time."""
    return setting(default, doc, check, dynamic=True, config_type=config_type)


int_setting = functools.partial(setting, config_type="INT")
"""Declare a setting of Kafka's type INT."""
dynamic_int_setting = functools.partial(dynamic_setting, config_type="INT")
"""Declare a setting of Kafka's type INT that can change at run time."""


def setting_of(cls: type[Any], name: str, note: str = "") -> Any:
    """Return a copy of a setting that another class declares: its key, default, limits, and its text with a note."""
    declared = next(f for f in dataclasses.fields(cls) if f.name == name)
    declaration: _Declaration = declared.metadata[_METADATA]
    noted = dataclasses.replace(declaration, doc=declaration.doc + note)
    return dataclasses.field(default=declared.default, repr=declared.repr, metadata={_METADATA: noted})


def config_key(field: dataclasses.Field[Any]) -> str:
    """Return a field's dotted key."""
    declaration: _Declaration = field.metadata[_METADATA]
    return declaration.key or field.name.replace("_", ".")


def config_keys(cls: type[Any]) -> set[str]:
    """Return every key that ``cls`` reads, aliases included."""
    return {key for f in dataclasses.fields(cls) for key in (config_key(f), *f.metadata[_METADATA].aliases)}


def parse_config(cls: type[T], raw: Mapping[str, object]) -> T:
    """Build ``cls`` from dotted keys; values may be text, as in a properties file, or of the right type.

    Raises:
        ConfigError: a key is unknown or missing, or a value is of the wrong type or out of range.
    """
    hints = _hints(cls)
    fields = {config_key(f): f for f in dataclasses.fields(cls)}  # type: ignore[arg-type]
    aliases = {alias: key for key, f in fields.items() for alias in f.metadata[_METADATA].aliases}
    values: dict[str, Any] = {}
    for given, value in raw.items():
        key = aliases.get(given, given)
        field = fields.get(key)
        if field is None:
            raise ConfigError(unknown_key(given, [*fields, *aliases]))
        values[field.name] = _parse_value(given, value, hints[field.name], field.metadata[_METADATA])
    for key, field in fields.items():
        if field.default is dataclasses.MISSING and field.name not in values:
            raise ConfigError(f'missing required configuration "{key}": {field.metadata[_METADATA].doc}')
    try:
        return cls(**values)
    except ValueError as error:
        raise ConfigError(str(error)) from error


def describe(cls: type[Any]) -> list[SettingInfo]:
    """Return the reference page's entries for the settings of ``cls``, in order of declaration."""
    hints = _hints(cls)
    return [
        SettingInfo(
            config_key(f),
            _type_name(hints[f.name]),
            f.default,
            f.metadata[_METADATA].doc,
            f.metadata[_METADATA].dynamic,
            f.metadata[_METADATA].secret,
            f.metadata[_METADATA].config_type or _config_type(hints[f.name]),
            f.name,
            f.metadata[_METADATA].aliases,
        )
        for f in dataclasses.fields(cls)
    ]


def _hints(cls: type[Any]) -> Mapping[str, Any]:
    """Return the types of the fields of ``cls``; evaluating the annotations takes milliseconds."""
    # mypy compares the hash of an instance, not that of a class, with what a cache needs.
    key: Any = cls
    return _evaluated(key)


@functools.cache
def _evaluated(cls: Any) -> Mapping[str, Any]:
    return typing.get_type_hints(cls)


def format_value(value: object) -> str | None:
    """Return a setting's value in a properties file's format, for :func:`parse_config`; None for None."""
    if value is None:
        return None
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, tuple):
        return ",".join(map(str, value))
    return format_double(value) if isinstance(value, float) else str(value)


def format_double(value: float) -> str:
    """Return a number as Java, and thus Kafka, writes a double: ``0.5``, ``1.0E7``, ``Infinity``."""
    if math.isinf(value):
        return "Infinity" if value > 0 else "-Infinity"
    if value == 0 or 1e-3 <= abs(value) < 1e7:
        return repr(value)
    from decimal import Decimal  # costs 1 ms, and few numbers need an exponent

    sign, digits, exponent = Decimal(repr(value)).normalize().as_tuple()
    assert isinstance(exponent, int), "the number is finite"
    fraction = "".join(map(str, digits[1:])) or "0"
    return f"{'-' * sign}{digits[0]}.{fraction}E{exponent + len(digits) - 1}"


def check_type(key: str, value: str, config_type: str) -> None:
    """Raise if a text is not a value of Kafka's number types or BOOLEAN.

    Raises:
        ConfigError: the text names the key and the value.
    """
    bits = config_type if config_type in _BITS else None
    _parse_value(key, value, _HINTS.get(config_type, str), _Declaration("", None, False, False, None, (), bits))


def unknown_key(key: str, known: Iterable[str]) -> str:
    """Return an error text that names an unknown key and the closest known one."""
    import difflib  # costs 1 ms, which only errors pay

    near = difflib.get_close_matches(key, list(known), n=1)
    hint = f'; did you mean "{near[0]}"?' if near else ""
    return f'unknown configuration "{key}"{hint}'


def _parse_value(key: str, value: object, hint: Any, declaration: _Declaration) -> Any:
    try:
        parsed = _convert(value, hint)
        if declaration.config_type in _BITS and parsed is not None:
            _check_range(parsed, declaration.config_type)
        if declaration.check is not None and parsed is not None:
            declaration.check(parsed)
    except (TypeError, ValueError, ConfigError) as error:
        if declaration.secret or isinstance(value, ProvidedText):
            raise ConfigError(
                f'invalid value {HIDDEN} for configuration "{key}"{_reason_without(value, error)}'
            ) from None
        if isinstance(error, ConfigError):
            raise ConfigError(f'configuration "{key}": {error.message}') from error
        raise ConfigError(f'invalid value {value!r} for configuration "{key}": {error}') from error
    return parsed


def _reason_without(value: object, error: Exception) -> str:
    """Return the reason of an error, or nothing if it may contain a part of the value.

    The validators' ValueErrors name their limits; a ConfigError is of a parser and quotes what it has read.
    """
    is_safe = not isinstance(error, ConfigError) and str(value).strip() not in str(error)
    return f": {error}" if is_safe else ""


def _convert(value: object, hint: Any) -> Any:
    options = typing.get_args(hint)
    if type(None) in options:
        if value is None or value == "":
            return None
        hint = next(o for o in options if o is not type(None))
    if typing.get_origin(hint) is tuple:
        parts = value.split(",") if isinstance(value, str) else typing.cast("list[object]", value)
        member = typing.get_args(hint)[0]
        stripped = (p.strip() if isinstance(p, str) else p for p in parts)
        return tuple(_convert(p, member) for p in stripped if p != "")
    if hint is bool:
        return _convert_bool(value)
    if hint is int or hint is float:
        return _convert_number(value, hint)
    if hint is str:
        return ProvidedText(value.strip()) if isinstance(value, ProvidedText) else str(value).strip()
    if isinstance(value, hint):
        return value
    raise TypeError(f"must be {_type_name(hint)}")


def _convert_bool(value: object) -> bool:
    if isinstance(value, bool):
        return value
    text = str(value).strip().lower()
    if text not in ("true", "false"):
        raise ValueError("must be true or false")
    return text == "true"


def _convert_number(value: object, hint: type[int] | type[float]) -> float:
    if isinstance(value, bool) or (hint is int and isinstance(value, float) and not value.is_integer()):
        raise ValueError(f"must be {_type_name(hint)}")
    text = str(value).strip()
    try:
        # Python's own spellings, such as 1_000 or non-ASCII digits, are invalid elsewhere.
        if "_" in text or not text.isascii():
            raise ValueError(text)
        number = hint(text)
    except (TypeError, ValueError) as error:
        raise ValueError(f"must be {_type_name(hint)}") from error
    if hint is int:
        _check_range(number, "LONG")
    return number


def _check_range(number: float, config_type: str) -> None:
    bits = _BITS[config_type]
    if not -(2 ** (bits - 1)) <= number < 2 ** (bits - 1):
        raise ValueError(f"must fit into {bits} bits")


def _type_name(hint: Any) -> str:
    names = {int: "a whole number", float: "a number", bool: "true or false", str: "text"}
    options = [o for o in typing.get_args(hint) if o is not type(None)]
    if typing.get_origin(hint) is tuple:
        return "a comma-separated list"
    if options:
        return _type_name(options[0])
    return names.get(hint, getattr(hint, "__name__", str(hint)))


def _config_type(hint: Any) -> str:
    words = {int: "LONG", float: "DOUBLE", bool: "BOOLEAN"}
    if typing.get_origin(hint) is tuple:
        return "LIST"
    options = [o for o in typing.get_args(hint) if o is not type(None)]
    return _config_type(options[0]) if options else words.get(hint, "STRING")
