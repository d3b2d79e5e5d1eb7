"""Random records and settings for transforms, as functions of a seed. Each case has steps and records."""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from typing import Any

PACKAGE = "org.apache.kafka.connect.transforms."
_LOGICAL = "org.apache.kafka.connect.data."
_TEXTS = (
    "",
    "x",
    "12",
    "-7",
    "1.5",
    "true",
    "TRUE",
    "1e3",
    "+4",
    " 5",
    "300",
    "2147483648",
    "ünï",
    "2020-02-03 04:05:06.789",
)
_STRING = {"type": "string", "optional": False}

SCHEMA: Mapping[str, Any] = {
    "type": "struct",
    "optional": True,
    "name": "sample",
    "version": 2,
    "fields": [
        {"type": "int8", "optional": True, "field": "i8"},
        {"type": "int16", "optional": True, "default": 16, "field": "i16"},
        {"type": "int32", "optional": True, "default": 32, "field": "i32"},
        {"type": "int64", "optional": False, "field": "i64"},
        {"type": "float", "optional": True, "field": "f32"},
        {"type": "double", "optional": True, "default": 6.5, "field": "f64"},
        {"type": "boolean", "optional": True, "default": True, "field": "bool"},
        {"type": "string", "optional": True, "default": "12", "field": "str"},
        {"type": "bytes", "optional": True, "field": "raw"},
        {"type": "int64", "optional": True, "name": f"{_LOGICAL}Timestamp", "version": 1, "field": "at"},
        {"type": "int32", "optional": True, "name": f"{_LOGICAL}Date", "version": 1, "field": "day"},
        {"type": "int32", "optional": True, "name": f"{_LOGICAL}Time", "version": 1, "field": "clock"},
        {"type": "array", "optional": True, "items": {"type": "int32", "optional": True}, "field": "list"},
        {"type": "map", "optional": True, "keys": _STRING, "values": _STRING, "field": "map"},
        {
            "type": "struct",
            "optional": True,
            "field": "inner",
            "fields": [
                {"type": "string", "optional": True, "default": "deep", "field": "s"},
                {"type": "struct", "optional": True, "field": "t", "fields": [{**_STRING, "field": "u"}]},
            ],
        },
    ],
}
_NAMES = [field["field"] for field in SCHEMA["fields"]]


def step(kind: str, /, **settings: str) -> dict[str, Any]:
    """Return a step; ``__`` in the name of a setting is a dot."""
    return {"class": PACKAGE + kind, "settings": {key.replace("__", "."): value for key, value in settings.items()}}


_SPECS = [f"{name}:{kind}" for name in ("i8", "i32", "i64", "f64", "bool", "str", "at", "day") for kind in
          ("int8", "int16", "int32", "int64", "float32", "float64", "boolean", "string")]  # fmt: skip
_CLOCKS = [
    {"field": field, "target.type": target, "format": "yyyy-MM-dd HH:mm:ss.SSS", "unix.precision": precision}
    for field in ("at", "day", "clock", "i64", "str")
    for target in ("string", "unix", "Date", "Time", "Timestamp")
    for precision in ("milliseconds", "seconds", "microseconds")
]


def random_step(numbers: random.Random) -> dict[str, Any]:
    """Return a transform of values with random settings."""
    some = ",".join(numbers.sample(_NAMES, 3))
    one = numbers.choice(_NAMES)
    flag = numbers.choice(["true", "false"])
    steps = [
        step("Cast$Value", spec=",".join({spec.split(":")[0]: spec for spec in numbers.sample(_SPECS, 2)}.values())),
        step("Cast$Value", spec=numbers.choice(_SPECS), replace__null__with__default=flag),
        step("DropHeaders", headers="h0,other"),
        step("ExtractField$Value", field=one, replace__null__with__default=flag),
        step("ExtractField$Value", field=numbers.choice(["inner.s", "`str`", "inner"]), field__syntax__version="V2"),
        step("Filter"),
        step("HeaderFrom$Value", fields=f"{numbers.choice(_NAMES[:12])},str", headers="one,two",
             operation=numbers.choice(["move", "copy"]), replace__null__with__default=flag),
        step("HoistField$Value", field="all"),
        step("InsertField$Value", topic__field="t!", partition__field="p?", offset__field="o", timestamp__field="ts"),
        step("InsertField$Value", static__field=numbers.choice(["new", "str"]), static__value="fixed"),
        step("InsertHeader", header="h", value__literal=numbers.choice(["a b", "1.50", "7e2", "true", "null", "-3"])),
        step("MaskField$Value", fields=some, replace__null__with__default=flag),
        step("MaskField$Value", fields=some, replacement=numbers.choice(["9", "x", "3.7", "400"])),
        step("RegexRouter", regex=numbers.choice(["(t)(.*)", "t|to", "to.*", "nothing"]), replacement="$1new"),
        step("ReplaceField$Value", exclude=some, renames=f"{one}:renamed", replace__null__with__default=flag),
        step("ReplaceField$Value", include=some, renames="i8:str" if numbers.random() < 0.1 else "i8:eight"),
        step("SetSchemaMetadata$Value", schema__name="renamed", schema__version="9"),
        step("TimestampRouter", timestamp__format=numbers.choice(["yyyyMMdd", "yyyy-'W'ww", "HH.mm.ss.SSS", "EEE D"])),
        {"class": f"{PACKAGE}TimestampConverter$Value", "settings": numbers.choice(_CLOCKS)},
        step("ValueToKey", fields=some),
        step("predicates.TopicNameMatches", pattern=numbers.choice(["t.*", "opic", "topic1"])),
        step("predicates.HasHeaderKey", name=numbers.choice(["h0", "none"])),
        step("predicates.RecordIsTombstone"),
    ]  # fmt: skip
    return numbers.choice(steps)


def random_case(seed: int, records: int = 8) -> dict[str, Any]:
    """Return a case of one step; records have a schema for even seeds, and none for odd ones."""
    numbers = random.Random(seed)
    chosen = random_step(numbers)
    side = _structs if seed % 2 == 0 else _maps
    if seed % 2 and numbers.random() < 0.15:
        chosen = step("Flatten$Value", delimiter="_")
    return {"steps": [chosen], "records": random_records(numbers, records, side)}


def random_records(numbers: random.Random, count: int, value: Any) -> list[dict[str, Any]]:
    """Return records; ``value`` makes a value of random numbers."""
    return [
        {
            "topic": numbers.choice(["topic1", "topic2", "to"]),
            "partition": numbers.randrange(4),
            "offset": numbers.randrange(10**6),
            "timestamp": numbers.choice([0, 1600000000123, 951782400000]),
            "key": {"payload": None},
            "value": value(numbers),
            "headers": numbers.choice([[], [["h0", "text"]], [["h1", "text"], ["h0", "a"], ["h0", "b"]]]),
        }
        for _ in range(count)
    ]


def _structs(numbers: random.Random) -> dict[str, Any]:
    return {"schema": SCHEMA, "payload": None if numbers.random() < 0.1 else _struct(numbers, SCHEMA)}


def _struct(numbers: random.Random, schema: Mapping[str, Any]) -> dict[str, Any]:
    return {field["field"]: _value(numbers, field) for field in schema["fields"]}


def _value(numbers: random.Random, schema: Mapping[str, Any]) -> Any:
    if schema["optional"] and numbers.random() < 0.25:
        return None
    limits = {"int8": 7, "int16": 15, "int32": 31, "int64": 63}
    if schema.get("name") == f"{_LOGICAL}Timestamp":
        return numbers.choice([0, 1, 86_400_000, 1600000000123, 951782400000, 4102444800000])
    if schema.get("name") == f"{_LOGICAL}Date":
        return numbers.choice([0, 1, 18000, 30000])
    if schema.get("name") == f"{_LOGICAL}Time":
        return numbers.choice([0, 1, 86_399_999, 43_200_000])
    if schema["type"] in limits:
        limit = 1 << limits[schema["type"]]
        return numbers.choice([0, 1, -1, 42, limit - 1, -limit, numbers.randrange(-limit, limit)])
    if schema["type"] == "struct":
        return _struct(numbers, schema)
    if schema["type"] == "array":
        return [numbers.randrange(5) for _ in range(numbers.randrange(3))]
    if schema["type"] == "map":
        return dict.fromkeys("ab"[: numbers.randrange(3)], "v")
    choices: Mapping[str, Sequence[Any]] = {
        "boolean": [True, False],
        "float": [0.0, 0.5, -1.25, 100.75, 4e10],
        "double": [0.0, 0.1, -2.5, 1e10, 3e18, 1e300, 123456.789],
        "string": _TEXTS,
        "bytes": ["", "AQI=", "/w=="],
    }
    return numbers.choice(choices[schema["type"]])


def _maps(numbers: random.Random) -> dict[str, Any]:
    if numbers.random() < 0.15:
        return {"payload": numbers.choice([None, 5, "text", 2.5, True, [1]])}
    return {"payload": {name: _any(numbers, 0) for name in numbers.sample(_NAMES, numbers.randrange(len(_NAMES)))}}


def _any(numbers: random.Random, depth: int) -> Any:
    scalars = [None, True, False, 0, 7, -300, 2**40, 0.5, 1e10, -2.75, *_TEXTS]
    if depth < 3 and numbers.random() < 0.25:
        return {name: _any(numbers, depth + 1) for name in ("s", "t", "u")[: numbers.randrange(4)]}
    return [numbers.choice(scalars), {"in": 1}] if numbers.random() < 0.05 else numbers.choice(scalars)


def chains() -> list[dict[str, Any]]:
    """Return two cases of several steps, for records with and without a schema."""
    with_schema = [
        step("InsertField$Value", topic__field="t!", offset__field="o", static__field="fixed", static__value="v"),
        step("Cast$Value", spec="i8:string,f64:int32"),
        step("ReplaceField$Value", exclude="list,map,raw", renames="i16:sixteen"),
        step("TimestampRouter"),
    ]
    without = [
        step("MaskField$Value", fields="bool,i8"),
        step("HeaderFrom$Value", fields="f64", headers="one", operation="move"),
        step("ValueToKey", fields="str,i8"),
    ]
    numbers = random.Random(1)
    return [
        {"steps": with_schema, "records": random_records(numbers, 12, _structs)},
        {"steps": without, "records": random_records(numbers, 12, _maps)},
    ]
