"""`ReplaceField`: fields left out or renamed."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from pyspark.sql import Column
from pyspark.sql import functions as sql

from tidelog_connect.configuration import ConfigDef, ConfigException, Importance, Type
from tidelog_connect.records import SCHEMA_BUILDER_EXCEPTION, Failure, Records, Side
from tidelog_connect.schemas import Field, SchemaType
from tidelog_connect.transforms import structs, variants
from tidelog_connect.transforms.settings import REPLACE_NULL, strings, with_replace_null
from tidelog_connect.transforms.side import Subject

_PURPOSE = "field replacement"


def rename_mappings(mappings: object) -> dict[str, str]:
    """Return the new names by the old ones, of texts such as ``old:new``.

    Raises:
        ConfigException: a text has another form.
    """
    found = {}
    for mapping in strings(mappings):
        # As Java's String.split: empty parts at the end do not count.
        parts = mapping.rstrip(":").split(":")
        if len(parts) != 2:
            raise ConfigException.of("renames", mappings, f"Invalid rename mapping: {mapping}")
        found[parts[0]] = parts[1]
    return found


@dataclass(frozen=True, slots=True)
class _Renames:
    def __call__(self, name: str, value: object) -> None:
        if value is not None:
            rename_mappings(value)


CONFIG = with_replace_null(
    ConfigDef()
    .define(
        "exclude", Type.LIST, "", Importance.MEDIUM, "Fields to leave out, even if they are among those to include."
    )
    .define("include", Type.LIST, "", Importance.MEDIUM, "Fields to keep. When empty, all fields are kept.")
    .define("renames", Type.LIST, "", Importance.MEDIUM, "New names of fields: old:new,...", validator=_Renames())
)


@dataclass(frozen=True, slots=True)
class ReplaceField:
    """Leaves out and renames fields."""

    side: Side
    exclude: frozenset[str]
    include: frozenset[str]
    renames: Mapping[str, str]
    replace_null: bool

    @classmethod
    def of(cls, side: Side, values: Mapping[str, object]) -> ReplaceField:
        """Return the transform of parsed settings."""
        exclude, include = frozenset(strings(values["exclude"])), frozenset(strings(values["include"]))
        return cls(side, exclude, include, rename_mappings(values["renames"]), bool(values[REPLACE_NULL]))

    def __call__(self, records: Records) -> Records:
        """Return the records with the fields that remain."""
        subject = Subject(records, self.side)
        failures = subject.failures(_PURPOSE, allows_null=True)
        schema = subject.schema
        if schema is None:
            return subject.changed(variants.from_fields(self._fields(subject)), failures, None)
        if schema.type is not SchemaType.STRUCT:
            return subject.failed(failures)
        kept = [(each, self.renames.get(each.name, each.name)) for each in schema.fields if self._keeps(each.name)]
        names = [name for _, name in kept]
        twice = next((name for name in names if names.count(name) > 1), None)
        if twice is not None:
            message = f"Cannot create field because of field name duplication {twice}"
            return subject.failed([*failures, Failure(subject.column.isNotNull(), SCHEMA_BUILDER_EXCEPTION, message)])
        column = structs.struct(
            (name, structs.field(subject.column, each.name, each.schema, self.replace_null)) for each, name in kept
        )
        return subject.changed(
            column, failures, schema.with_fields(tuple(Field(name, each.schema) for each, name in kept))
        )

    def _keeps(self, name: str) -> bool:
        return name not in self.exclude and (not self.include or name in self.include)

    def _fields(self, subject: Subject) -> Column:
        found = variants.without(variants.fields(subject.column), *sorted(self.exclude))
        if self.include:
            found = sql.map_filter(found, lambda key, _: key.isin(*sorted(self.include)))
        if self.renames:
            pairs = [sql.lit(text) for pair in self.renames.items() for text in pair]
            table = sql.create_map(*pairs)
            # A field that takes the name of another one takes its place too.
            renamed = sql.map_filter(found, lambda key, _: key.isin(*self.renames))
            taken = sql.map_values(sql.map_filter(table, lambda key, _: sql.map_contains_key(renamed, key)))
            others = sql.map_filter(found, lambda key, _: ~key.isin(*self.renames) & ~sql.array_contains(taken, key))
            moved = sql.transform_keys(renamed, lambda key, _: sql.element_at(table, key))
            found = sql.map_concat(others, moved)
        return found
