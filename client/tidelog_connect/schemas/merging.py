"""`merged_schema`: one schema for the values of two, such as those before and after a column was added (pure)."""

from __future__ import annotations

from tidelog_connect.schemas.schema import ConnectSchema, Field, SchemaType


def merged_schema(one: ConnectSchema, other: ConnectSchema) -> ConnectSchema | None:
    """Return the schema that holds the values of both, or None if there is none.

    Structs of one name have the fields of both: ``one``'s first, and a field that only one has is optional. Any other
    parts are equal, but for being optional. The rest of the metadata is that of ``one``.
    """
    optional = one.optional or other.optional
    if one.as_optional(optional) == other.as_optional(optional):
        return one.as_optional(optional)
    if not one.type is other.type is SchemaType.STRUCT or one.name != other.name:
        return None
    fields = []
    for name in dict.fromkeys(each.name for each in (*one.fields, *other.fields)):
        first, second = one.field(name), other.field(name)
        merged = merged_schema(first, second) if first and second else (first or second)
        if merged is None:
            return None
        fields.append(Field(name, merged if first and second else merged.as_optional()))
    return one.with_fields(tuple(fields)).as_optional(optional)
