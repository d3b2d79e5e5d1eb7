"""`Catalog`: the definitions by name, the changes that statements make to them, and their form as YAML. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import MISSING, dataclass, field, fields
from typing import Any

import yaml

from tidelog_foundation.errors import TidelogError
from tidelog_foundation.topic_names import validate_topic_name
from tidelog_spark.sql.definitions import (
    SPARK_PACKAGES,
    Column,
    Definition,
    Kind,
    OutputMode,
    Part,
    Query,
    Relation,
    Start,
    Watermark,
    check_choice,
    check_relation,
)
from tidelog_spark.sql.errors import SqlError

_OTHER_BREAKS = re.compile("[\x85\u2028\u2029\ufeff]")
_RELATIONS, _QUERIES = "relations", "queries"
_QUERY = "query"

Changes = dict[str, Definition | None]
"""Definitions by their keys in a store; None deletes one."""


@dataclass(frozen=True, slots=True)
class Catalog:
    """The definitions by their keys. Names are equal without regard to case, as in Spark."""

    definitions: Mapping[str, Definition] = field(default_factory=dict)

    @property
    def relations(self) -> list[Relation]:
        """The streams and tables, by name."""
        return [each for _, each in sorted(self.definitions.items()) if isinstance(each, Relation)]

    @property
    def queries(self) -> list[Query]:
        """The persistent queries, by name."""
        return [each for _, each in sorted(self.definitions.items()) if isinstance(each, Query)]

    @property
    def spark_packages(self) -> list[str]:
        """The formats of relations whose functions are in packages of Spark."""
        return sorted({each.format for each in self.relations} & set(SPARK_PACKAGES))

    def relation(self, name: str) -> Relation | None:
        """Return the stream or table of a name, if there is one."""
        found = self.definitions.get(_key(_RELATIONS, name))
        return found if isinstance(found, Relation) else None

    def query(self, name: str) -> Query | None:
        """Return the query of a name, if there is one."""
        found = self.definitions.get(_key(_QUERIES, name))
        return found if isinstance(found, Query) else None

    def existing_query(self, name: str) -> Query:
        """Return the query of a name.

        Raises:
            SqlError: there is none.
        """
        found = self.query(name)
        if found is None:
            raise SqlError(f"there is no query {name}; {_known([query.name for query in self.queries])}")
        return found

    def create(self, relation: Relation, query: Query | None = None, *, is_replacing: bool = False) -> Changes:
        """Return the changes that add a relation, with the query that writes it.

        Raises:
            SqlError: the name exists, or cannot be replaced because a query uses it.
        """
        self._check_free(relation, is_replacing)
        changes: Changes = {_key(_RELATIONS, _checked(relation.name)): check_relation(relation)}
        if query is not None or self.query(relation.name) is not None:
            changes[_key(_QUERIES, relation.name)] = query
        return changes

    def create_query(self, query: Query, *, is_replacing: bool = False) -> Changes:
        """Return the changes that add a query.

        Raises:
            SqlError: the name exists.
        """
        if self.query(query.name) is not None and not is_replacing:
            raise SqlError(f"the query {query.name} exists; CREATE OR REPLACE replaces it")
        return {_key(_QUERIES, _checked(query.name)): query}

    def drop(self, kind: Kind, name: str) -> Changes:
        """Return the changes that remove a relation.

        Raises:
            SqlError: there is none of this kind, or a query uses it.
        """
        found = self.relation(name)
        if found is None or found.kind is not kind:
            text = f"there is no {kind} {name}" if found is None else f"{name} is a {found.kind}"
            raise SqlError(f"{text}; {_known([each.name for each in self.relations if each.kind is kind])}")
        self._check_unused(name, self.users(name))
        return {_key(_RELATIONS, name): None}

    def set_query(self, query: Query | None, name: str) -> Changes:
        """Return the changes that store a query anew, or remove it."""
        return {_key(_QUERIES, name): query}

    def users(self, name: str) -> list[Query]:
        """Return the queries that read or write a relation."""
        wanted = name.lower()
        return [q for q in self.queries if wanted in {each.lower() for each in (q.sink, *q.reads)}]

    def _check_free(self, relation: Relation, is_replacing: bool) -> None:
        found = self.relation(relation.name)
        if found is None:
            if self.query(relation.name) is not None:
                raise SqlError(f"there is a query {relation.name}; a {relation.kind} needs another name")
            return
        if not is_replacing:
            raise SqlError(f"the {found.kind} {found.name} exists; CREATE OR REPLACE replaces it")
        self._check_unused(found.name, [q for q in self.users(found.name) if q.name.lower() != found.name.lower()])

    def _check_unused(self, name: str, users: Iterable[Query]) -> None:
        names = [query.name for query in users]
        if names:
            raise SqlError(f"{name} is in use by {', '.join(names)}; TERMINATE these queries first")


def parse_catalog(texts: Mapping[str, str]) -> Catalog:
    """Return the catalog of YAML texts by key.

    Raises:
        SqlError: a text is not valid; the message names its key.
    """
    found: dict[str, Definition] = {}
    for key, text in texts.items():
        definition = from_yaml(key, text)
        name_key = _key(_QUERIES if isinstance(definition, Query) else _RELATIONS, definition.name)
        if name_key != key:
            raise SqlError(f"{key}: the definition is of {definition.name}, which belongs at {name_key}")
        found[key] = definition
    return Catalog(found)


def to_yaml(definition: Definition) -> str:
    """Return a definition as YAML."""
    document: dict[str, Any]
    if isinstance(definition, Query):
        document = {"kind": _QUERY, **_plain(definition)}
    else:
        document = {
            "kind": definition.kind.value,
            **_plain(definition),
            "columns": [_plain(c) for c in definition.columns],
        }
        if definition.watermark is not None:
            document["watermark"] = _plain(definition.watermark)
    text = _dump(document, is_readable=True)
    # PyYAML writes some breaks of lines as they are, and reads them as spaces.
    return _dump(document, is_readable=False) if _OTHER_BREAKS.search(text) else text


def from_yaml(place: str, text: str) -> Definition:
    """Return the definition of a YAML text.

    Raises:
        SqlError: it is not valid; the message begins with ``place``.
    """
    try:
        document = yaml.safe_load(text)
    except yaml.YAMLError as error:
        raise SqlError(f"{place}: not YAML: {' '.join(str(error).split())}") from error
    if not isinstance(document, dict):
        raise SqlError(f"{place}: expected a mapping, found {type(document).__name__}")
    kind = document.pop("kind", None)
    check_choice(f"{place}: kind", str(kind), (*Kind, _QUERY))
    if kind == _QUERY:
        query: Query = _build(place, Query, document)
        return query
    document["kind"] = kind
    if isinstance(document.get("columns"), list):
        document["columns"] = [_build(f"{place}: columns", Column, column) for column in document["columns"]]
    if document.get("watermark") is not None:
        document["watermark"] = _build(f"{place}: watermark", Watermark, document["watermark"])
    try:
        return check_relation(_build(place, Relation, document))
    except SqlError as error:
        raise SqlError(f"{place}: {error.message}") from error


def _dump(document: dict[str, Any], *, is_readable: bool) -> str:
    text: str = yaml.dump(document, Dumper=_Dumper, sort_keys=False, allow_unicode=is_readable, width=100)
    return text


class _Dumper(yaml.SafeDumper):
    """Writes a text of several lines as a block."""


def _represent_text(dumper: yaml.SafeDumper, text: str) -> yaml.ScalarNode:
    return dumper.represent_scalar("tag:yaml.org,2002:str", text, style="|" if "\n" in text else None)


_Dumper.add_representer(str, _represent_text)
_ENUMS = {"kind": Kind, "part": Part, "mode": OutputMode, "start": Start}


def _plain(value: Any) -> dict[str, Any]:
    """Return the fields of a dataclass that have not their defaults, with plain values."""
    found: dict[str, Any] = {}
    for each in fields(value):
        content = getattr(value, each.name)
        default = each.default_factory() if each.default_factory is not MISSING else each.default
        if content == default or each.name == "kind":
            continue
        if isinstance(content, Mapping):
            content = dict(content)
        elif each.name in _ENUMS:
            content = content.value
        elif isinstance(content, tuple):
            content = list(content)
        found[each.name] = content
    return found


def _build(place: str, cls: type, document: object) -> Any:
    if not isinstance(document, dict):
        raise SqlError(f"{place}: expected a mapping, found {type(document).__name__}")
    known = {each.name: each for each in fields(cls)}
    unknown = [str(key) for key in document if key not in known]
    if unknown:
        raise SqlError(f"{place}: unknown key {unknown[0]}; known are kind, {', '.join(known)}")
    missing = [name for name, each in known.items() if _is_required(each) and name not in document]
    if missing:
        raise SqlError(f"{place}: {missing[0]} is missing")
    return cls(**{name: _value(f"{place}: {name}", known[name].type, name, each) for name, each in document.items()})


def _is_required(each: Any) -> bool:
    return each.default is MISSING and each.default_factory is MISSING


def _value(place: str, annotation: object, name: str, value: Any) -> Any:
    """Return a value of YAML as the field has it, of which each annotation here tells the type."""
    if name in _ENUMS:
        check_choice(place, str(value), [each.value for each in _ENUMS[name]])
        return _ENUMS[name](value)
    if annotation == "bool":
        expected: type = bool
    elif str(annotation).startswith("tuple"):
        expected = list
    elif str(annotation).startswith("Mapping"):
        expected = dict
    elif str(annotation).startswith("Watermark"):
        expected = Watermark
    else:
        expected = str
    if value is None and "None" in str(annotation):
        return None
    if not isinstance(value, expected):
        raise SqlError(f"{place}: expected {expected.__name__}, found {type(value).__name__}")
    if isinstance(value, list):
        if annotation == "tuple[str, ...]" and not all(isinstance(each, str) for each in value):
            raise SqlError(f"{place}: expected names")
        return tuple(value)
    if isinstance(value, dict):
        return {str(key): str(each) for key, each in value.items()}
    return value


def _key(folder: str, name: str) -> str:
    return f"{folder}/{name.lower()}"


def _checked(name: str) -> str:
    try:
        validate_topic_name(name)
    except TidelogError as error:
        raise SqlError(f"a name here follows the rules of topics: {error.message}") from error
    return name


def _known(names: list[str]) -> str:
    return f"there are {', '.join(names)}" if names else "there are none"
