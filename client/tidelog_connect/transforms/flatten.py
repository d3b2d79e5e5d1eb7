"""`Flatten`: nested data as one struct or map, with the joined names of its fields."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace

import pyarrow
from pyspark.sql import Column
from pyspark.sql import functions as sql
from pyspark.sql.pandas.functions import arrow_udf

from tidelog_connect.configuration import ConfigDef, Importance, Type
from tidelog_connect.records import SCHEMA_BUILDER_EXCEPTION, Failure, Records, Side
from tidelog_connect.schemas import ConnectSchema, Field, SchemaType
from tidelog_connect.transforms import structs, variants
from tidelog_connect.transforms.settings import text
from tidelog_connect.transforms.side import Subject

_PURPOSE = "flattening"

CONFIG = ConfigDef().define(
    "delimiter", Type.STRING, ".", Importance.MEDIUM, "The text between the names of a field and of those around it."
)


@dataclass(frozen=True, slots=True)
class Flatten:
    """Flattens structs by an expression, and maps, whose depth is not known, by a function over Arrow batches."""

    side: Side
    delimiter: str

    @classmethod
    def of(cls, side: Side, values: Mapping[str, object]) -> Flatten:
        """Return the transform of parsed settings."""
        return cls(side, text(values["delimiter"]))

    def __call__(self, records: Records) -> Records:
        """Return the records with flat data."""
        subject = Subject(records, self.side)
        failures = subject.failures(_PURPOSE, allows_null=True)
        schema = subject.schema
        if schema is None:
            flatten = arrow_udf(_flattened(self.delimiter), "string")  # type: ignore[call-overload]
            return subject.changed(
                sql.parse_json(flatten(sql.to_json(sql.when(variants.is_object(subject.column), subject.column)))),
                failures,
                None,
            )
        if schema.type is not SchemaType.STRUCT:
            return subject.failed(failures)
        leaves = [*self._leaves(subject.column, schema, "", schema.optional)]
        names = [field.name for field, _ in leaves]
        twice = next((name for name in names if names.count(name) > 1), None)
        if twice is not None:
            message = f"Cannot create field because of field name duplication {twice}"
            return subject.failed([*failures, Failure(subject.column.isNotNull(), SCHEMA_BUILDER_EXCEPTION, message)])
        column = structs.struct((field.name, leaf) for field, leaf in leaves)
        return subject.changed(column, failures, schema.with_fields(tuple(field for field, _ in leaves)))

    def _leaves(
        self, value: Column, schema: ConnectSchema, prefix: str, optional: bool
    ) -> Iterator[tuple[Field, Column]]:
        """Yield the flat fields with their values. A field is optional if it, or a struct around it, is."""
        for each in schema.fields:
            name = prefix + self.delimiter + each.name if prefix else each.name
            is_optional = optional or each.schema.optional
            column = structs.field(value, each.name, each.schema)
            if each.schema.type is SchemaType.STRUCT:
                yield from self._leaves(column, each.schema, name, is_optional)
            else:
                present = sql.when(value.isNotNull(), column) if prefix else column
                yield Field(name, replace(each.schema, optional=is_optional)), present


def _flattened(delimiter: str) -> Callable[[pyarrow.Array], pyarrow.Array]:
    """Return a function from the JSON of maps to that of flat maps, over Arrow batches."""

    def flatten(texts: pyarrow.Array) -> pyarrow.Array:
        found = [None if text is None else _flat(text, delimiter) for text in texts.to_pylist()]
        return pyarrow.array(found, pyarrow.string())

    return flatten


def _flat(text: str, delimiter: str) -> str:
    flat: dict[str, object] = {}
    pending = [("", json.loads(text))]
    while pending:
        prefix, value = pending.pop()
        for name, inner in value.items():
            full = prefix + delimiter + name if prefix else name
            if isinstance(inner, dict):
                pending.append((full, inner))
            else:
                flat[full] = inner
    return json.dumps(flat)
