"""The JSON form of schemas, as Connect's JsonConverter reads and writes it."""

from __future__ import annotations

from types import MappingProxyType

from tidelog_connect.schemas.errors import DataException
from tidelog_connect.schemas.schema import ConnectSchema, Field, SchemaType

_MAX_DEPTH = 100


def schema_to_json(schema: ConnectSchema, field: str | None = None) -> dict[str, object]:
    """Return a schema as JsonConverter writes it; ``field`` is the name of the struct's field that has it."""
    found: dict[str, object] = {"type": schema.type.value}
    if schema.type is SchemaType.STRUCT:
        found["fields"] = [schema_to_json(each.schema, each.name) for each in schema.fields]
    if schema.key_schema is not None:
        found["keys"] = schema_to_json(schema.key_schema)
    if schema.value_schema is not None:
        found["values" if schema.type is SchemaType.MAP else "items"] = schema_to_json(schema.value_schema)
    found["optional"] = schema.optional
    metadata = {"name": schema.name, "version": schema.version, "doc": schema.doc, "default": schema.default}
    found |= {name: value for name, value in metadata.items() if value is not None}
    if schema.parameters:
        found["parameters"] = dict(schema.parameters)
    if field is not None:
        found["field"] = field
    return found


def schema_from_json(text: object, depth: int = 0) -> ConnectSchema:
    """Return the schema of a JSON object.

    Raises:
        DataException: the object is no schema; the message is JsonConverter's where it has one.
    """
    if depth > _MAX_DEPTH:
        raise DataException(f"A schema has more than {_MAX_DEPTH} levels")
    if not isinstance(text, dict) or not isinstance(text.get("type"), str):
        raise DataException("Schema must contain 'type' field")
    try:
        kind = SchemaType(text["type"])
    except ValueError:
        raise DataException(f"Unknown schema type: {text['type']}") from None
    return ConnectSchema(
        type=kind,
        optional=_is_true(text.get("optional", False)),
        default=text.get("default"),
        name=_text(text, "name"),
        version=_number(text.get("version")),
        doc=_text(text, "doc"),
        parameters=_parameters(text.get("parameters")),
        fields=tuple(_fields(text.get("fields"), depth)) if kind is SchemaType.STRUCT else (),
        key_schema=schema_from_json(text.get("keys"), depth + 1) if kind is SchemaType.MAP else None,
        value_schema=_value_schema(kind, text, depth),
    )


def _value_schema(kind: SchemaType, text: dict[str, object], depth: int) -> ConnectSchema | None:
    if kind is SchemaType.MAP:
        return schema_from_json(text.get("values"), depth + 1)
    if kind is SchemaType.ARRAY:
        return schema_from_json(text.get("items"), depth + 1)
    return None


def _fields(found: object, depth: int) -> list[Field]:
    if not isinstance(found, list):
        raise DataException('Struct schema\'s "fields" argument is not an array.')
    fields = []
    for each in found:
        name = each.get("field") if isinstance(each, dict) else None
        if not isinstance(name, str):
            raise DataException("Struct schema's field name not specified properly")
        fields.append(Field(name, schema_from_json(each, depth + 1)))
    return fields


def _is_true(found: object) -> bool:
    return found is True


def _text(schema: dict[str, object], name: str) -> str | None:
    found = schema.get(name)
    if found is None or isinstance(found, str):
        return found
    raise DataException(f"Invalid schema {name}: {found!r:.100} is not text")


def _number(found: object) -> int | None:
    if found is None or (isinstance(found, int) and not isinstance(found, bool)):
        return found
    raise DataException(f"Invalid schema version: {found!r:.100} is not an integer")


def _parameters(found: object) -> MappingProxyType[str, str]:
    if found is None:
        return MappingProxyType({})
    if not isinstance(found, dict) or not all(isinstance(value, str) for value in found.values()):
        raise DataException("Schema parameter values must be strings.")
    return MappingProxyType(found)
