"""Connect's schemas of Avro schemas, by the rules of Confluent's AvroConverter (its ``AvroData``).

Unions other than of a type with null, and recursive records, have no Connect schema here.
"""

from __future__ import annotations

from types import MappingProxyType

from tidelog_connect.schemas.errors import DataException
from tidelog_connect.schemas.schema import DATE, DECIMAL, TIME, TIMESTAMP, ConnectSchema, Field, SchemaType

_PRIMITIVES = {
    "int": SchemaType.INT32,
    "long": SchemaType.INT64,
    "float": SchemaType.FLOAT32,
    "double": SchemaType.FLOAT64,
    "boolean": SchemaType.BOOLEAN,
    "string": SchemaType.STRING,
    "bytes": SchemaType.BYTES,
    "enum": SchemaType.STRING,
    "fixed": SchemaType.BYTES,
}
_LOGICAL = {
    ("int", "date"): (SchemaType.INT32, DATE),
    ("int", "time-millis"): (SchemaType.INT32, TIME),
    ("long", "timestamp-millis"): (SchemaType.INT64, TIMESTAMP),
    ("long", "timestamp-micros"): (SchemaType.INT64, TIMESTAMP),
}


def connect_schema_of_avro(avro: object) -> ConnectSchema:
    """Return the Connect schema of an Avro schema, given as parsed JSON.

    Raises:
        DataException: the Avro schema has a part that Connect's schemas lack, or names an unknown type.
    """
    return _schema(avro, {}, "")


def _schema(avro: object, named: dict[str, ConnectSchema | None], namespace: str) -> ConnectSchema:
    if isinstance(avro, list):
        others = [each for each in avro if each != "null"]
        if len(others) != 1:
            raise DataException(f"Avro unions must be of null and one type, not of {len(others)} types: {avro!r:.200}")
        inner = _schema(others[0], named, namespace)
        return inner.as_optional(inner.optional or len(avro) > 1)
    if isinstance(avro, str):
        return _named(avro, named, namespace)
    if not isinstance(avro, dict):
        raise DataException(f"Not an Avro schema: {avro!r:.200}")
    kind = avro.get("type")
    if not isinstance(kind, str):
        return _schema(kind, named, namespace)
    if kind == "record":
        return _record(avro, named, namespace)
    if kind == "array":
        return ConnectSchema(SchemaType.ARRAY, value_schema=_schema(avro.get("items"), named, namespace))
    if kind == "map":
        values = _schema(avro.get("values"), named, namespace)
        return ConnectSchema(SchemaType.MAP, key_schema=ConnectSchema(SchemaType.STRING), value_schema=values)
    schema = _scalar(kind, avro, named, namespace)
    if kind in ("enum", "fixed"):
        named[_full_name(avro, namespace)] = schema
    return schema


def _scalar(
    kind: str, avro: dict[str, object], named: dict[str, ConnectSchema | None], namespace: str
) -> ConnectSchema:
    logical = avro.get("logicalType")
    if logical == "decimal" and kind in ("bytes", "fixed"):
        parameters = MappingProxyType({"scale": str(avro.get("scale", 0))})
        return ConnectSchema(SchemaType.BYTES, name=DECIMAL, version=1, parameters=parameters)
    if isinstance(logical, str) and (kind, logical) in _LOGICAL:
        base, name = _LOGICAL[kind, logical]
        return ConnectSchema(base, name=name, version=1)
    return _named(kind, named, namespace)


def _record(avro: dict[str, object], named: dict[str, ConnectSchema | None], namespace: str) -> ConnectSchema:
    name = _full_name(avro, namespace)
    named[name] = None
    found = avro.get("fields")
    inner = name.rpartition(".")[0]
    fields = [
        Field(each["name"], _schema(each["type"], named, inner)) for each in (found if isinstance(found, list) else ())
    ]
    doc = avro.get("doc")
    schema = ConnectSchema(
        SchemaType.STRUCT, name=name, fields=tuple(fields), doc=doc if isinstance(doc, str) else None
    )
    named[name] = schema
    return schema


def _named(name: str, named: dict[str, ConnectSchema | None], namespace: str) -> ConnectSchema:
    if name in _PRIMITIVES:
        return ConnectSchema(_PRIMITIVES[name])
    full = name if "." in name or not namespace else f"{namespace}.{name}"
    if full not in named:
        raise DataException(f"The Avro schema names an unknown type {name!r}")
    schema = named[full]
    if schema is None:
        raise DataException(f"The Avro record {full} contains itself, which Spark's types cannot")
    return schema


def _full_name(avro: dict[str, object], namespace: str) -> str:
    name, own = str(avro.get("name")), avro.get("namespace", namespace)
    return name if "." in name or not own else f"{own}.{name}"
