"""`RecordGenerator`: random values of an Avro schema. Record N of a seed is always the same (pure).

The schema may say how values are chosen, by the ``arg.properties`` of Confluent's Avro random generator: ``options``,
``range``, ``iteration``, ``regex`` and ``length``. A union is null with one chance in two.
"""

from __future__ import annotations

import string
from collections.abc import Callable, Mapping
from random import Random
from typing import Any

import rstr

from tidelog_connect.configuration import ConfigException
from tidelog_connect.schemas import DataException

_ARGUMENTS = frozenset({"options", "range", "iteration", "regex", "length"})
_LENGTHS = {"min": 8, "max": 17}
_ELEMENTS = {"min": 1, "max": 5}
_RANGES: dict[str, tuple[float, float]] = {
    "int": (-(2**31), 2**31),
    "long": (-(2**63), 2**63),
    "float": (0, 1),
    "double": (0, 1),
}
_LETTERS = string.ascii_letters + string.digits
_MAX_LENGTH = 100_000

Value = Callable[[Random, int], Any]
"""Returns the value of a record by its random numbers and its number."""


class RecordGenerator:
    """Generates the records of a schema, which is a record's."""

    def __init__(self, schema: Any, seed: int) -> None:
        if not isinstance(schema, dict) or schema.get("type") != "record":
            raise DataException("The schema must be an Avro record")
        self._value = _value(schema, {}, "")
        self._seed = seed

    def record(self, number: int) -> dict[str, Any]:
        """Return the record of a number, from 0."""
        found: dict[str, Any] = self._value(Random(f"{self._seed}/{number}"), number)
        return found


def _value(schema: Any, named: dict[str, Value], path: str) -> Value:
    if isinstance(schema, list):
        return _union(schema, named, path)
    if isinstance(schema, str):
        schema = {"type": schema}
    if not isinstance(schema, dict):
        raise DataException(f"{path}: not an Avro schema: {schema!r:.200}")
    kind = schema.get("type")
    if not isinstance(kind, str):
        return _value(kind, named, path)
    if "logicalType" in schema:
        raise DataException(f"{path}: logical types cannot be generated; TimestampConverter makes them")
    arguments = _arguments(schema, path)
    if "options" in arguments:
        return _option(arguments["options"], path)
    if "iteration" in arguments:
        return _iteration(arguments["iteration"], kind, path)
    if kind in named:
        return named[kind]
    found = _of_type(kind, schema, arguments, named, path)
    if "name" in schema and kind in ("record", "enum", "fixed"):
        named[str(schema["name"])] = found
        named[f"{schema.get('namespace', '')}.{schema['name']}"] = found
    return found


def _of_type(
    kind: str, schema: Mapping[str, Any], arguments: Mapping[str, Any], named: dict[str, Value], path: str
) -> Value:
    match kind:
        case "record":
            parts = {each["name"]: _value(each["type"], named, f"{path}.{each['name']}") for each in schema["fields"]}
            return lambda random, number: {name: part(random, number) for name, part in parts.items()}
        case "enum":
            return _option(schema["symbols"], path)
        case "null":
            return lambda random, number: None
        case "boolean":
            return lambda random, number: random.random() < 0.5
        case "int" | "long":
            low, high = _range(arguments, kind, path)
            return lambda random, number: random.randrange(int(low), max(int(high), int(low) + 1))
        case "float" | "double":
            start, end = _range(arguments, kind, path)
            return lambda random, number: random.uniform(start, end)
        case "string":
            return _text(arguments, path)
        case "bytes":
            least, most = _lengths(arguments, _LENGTHS, path)
            return lambda random, number: random.randbytes(random.randrange(least, most))
        case "fixed":
            size = int(schema["size"])
            return lambda random, number: random.randbytes(size)
        case "array" | "map":
            return _collection(kind, schema, arguments, named, path)
    raise DataException(f"{path}: the Avro schema names an unknown type {kind!r}")


def _collection(
    kind: str, schema: Mapping[str, Any], arguments: Mapping[str, Any], named: dict[str, Value], path: str
) -> Value:
    least, most = _lengths(arguments, _ELEMENTS, path)
    if kind == "array":
        item = _value(schema["items"], named, f"{path}[]")
        return lambda random, number: [item(random, number) for _ in range(random.randrange(least, most))]
    part = _value(schema["values"], named, f"{path}[]")
    return lambda random, number: {
        _letters(random, 8): part(random, number) for _ in range(random.randrange(least, most))
    }


def _union(schema: list[Any], named: dict[str, Value], path: str) -> Value:
    parts = [_value(each, named, path) for each in schema]
    return lambda random, number: random.choice(parts)(random, number)


def _arguments(schema: Mapping[str, Any], path: str) -> Mapping[str, Any]:
    found = schema.get("arg.properties", {})
    unknown = sorted(set(found) - _ARGUMENTS)
    if unknown:
        raise DataException(f"{path}: arg.properties has no {unknown[0]}; it has {', '.join(sorted(_ARGUMENTS))}")
    return dict(found)


def _option(options: Any, path: str) -> Value:
    if not isinstance(options, list) or not options:
        raise DataException(f"{path}: options must be a list of at least one value")
    return lambda random, number: random.choice(options)


def _iteration(arguments: Mapping[str, Any], kind: str, path: str) -> Value:
    """Return start, start + step, and so on, beginning again before ``restart``."""
    if "start" not in arguments:
        raise DataException(f"{path}: iteration needs a start")
    start, step, restart = arguments["start"], arguments.get("step", 1), arguments.get("restart")
    count = None if restart is None else max(1, -(-(restart - start) // step))
    wraps = _RANGES.get(kind) if restart is None else None

    def value(random: Random, number: int) -> Any:
        found = start + step * (number if count is None else number % int(count))
        if wraps is not None and kind in ("int", "long") and not wraps[0] <= found < wraps[1]:
            raise DataException(f"{path}: the iteration has passed the largest {kind}; set restart")
        return str(found) if kind == "string" else found

    return value


def _text(arguments: Mapping[str, Any], path: str) -> Value:
    pattern = arguments.get("regex")
    if pattern is None:
        least, most = _lengths(arguments, _LENGTHS, path)
        return lambda random, number: _letters(random, random.randrange(least, most))
    try:
        rstr.Rstr(Random(0)).xeger(pattern)
    except Exception as error:
        raise DataException(f"{path}: no text can be generated for the regex {pattern!r}: {error}") from error
    return lambda random, number: rstr.Rstr(random).xeger(pattern)


def _letters(random: Random, length: int) -> str:
    return "".join(random.choices(_LETTERS, k=length))


def _range(arguments: Mapping[str, Any], kind: str, path: str) -> tuple[float, float]:
    given = arguments.get("range", {})
    low, high = given.get("min", _RANGES[kind][0]), given.get("max", _RANGES[kind][1])
    if low > high:
        raise DataException(f"{path}: range has min {low}, which is above max {high}")
    return low, high


def _lengths(arguments: Mapping[str, Any], default: Mapping[str, int], path: str) -> tuple[int, int]:
    given = arguments.get("length", default)
    if isinstance(given, int):
        given = {"min": given, "max": given + 1}
    least, most = int(given.get("min", default["min"])), int(given.get("max", default["max"]))
    if not 0 <= least < most <= _MAX_LENGTH:
        raise DataException(f"{path}: length must be from a min of at least 0 to a larger max up to {_MAX_LENGTH}")
    return least, most


def check_schema(name: str, schema: Any) -> None:
    """Check that records of a schema can be generated.

    Raises:
        ConfigException: they cannot.
    """
    try:
        RecordGenerator(schema, 0).record(0)
    except (DataException, KeyError, TypeError, ValueError) as error:
        raise ConfigException.of(name, str(schema)[:100], str(error)) from error
