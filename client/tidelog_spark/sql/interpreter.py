"""`Interpreter`: carries out statements on a catalog, the topics of a cluster, and an engine."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Protocol

from tidelog_spark.sql import creation
from tidelog_spark.sql.catalog import Catalog, Changes
from tidelog_spark.sql.definitions import Column, OutputMode, Part, Query, Relation, Start
from tidelog_spark.sql.errors import SqlError
from tidelog_spark.sql.inference import infer_relation
from tidelog_spark.sql.plan import WritePlan, free_relation, write_plan
from tidelog_spark.sql.results import Analysis, Done, Resolve, Result, Rows
from tidelog_spark.sql.schemas import with_schemas
from tidelog_spark.sql.statements import (
    CreateAs,
    CreateQuery,
    CreateRelation,
    Describe,
    Drop,
    Explain,
    Insert,
    Show,
    SparkStatement,
    Statement,
    Steer,
)
from tidelog_spark.sql.stores import Store
from tidelog_spark.sql.topics import Sample


class Engine(Protocol):
    """The part of `SparkEngine` that statements need."""

    def rows(self, select: str, resolve: Resolve, limit: int | None, *, as_json: bool = False) -> Rows:
        """Return the rows of a query."""
        ...

    def follow(
        self, select: str, resolve: Resolve, start: Start, mode: OutputMode | None, *, as_json: bool = False
    ) -> Rows:
        """Return the rows of a query as they come."""
        ...

    def analyze(self, select: str, resolve: Resolve, mode: OutputMode | None) -> Analysis:
        """Return the columns and the relations of a query."""
        ...

    def explain(self, select: str, resolve: Resolve) -> str:
        """Return the plan of a query."""
        ...

    def insert(self, select: str, resolve: Resolve, plan: Callable[[tuple[Column, ...]], WritePlan]) -> int:
        """Write the rows of a query."""
        ...


class ClusterTopics(Protocol):
    """The part of `Topics` that statements need."""

    def partitions(self) -> dict[str, tuple[int, int]]:
        """Return the numbers of partitions and of replicas by topic."""
        ...

    def create(self, topic: str, partitions: int, replicas: int, config: Mapping[str, str]) -> None:
        """Create a topic if it does not exist."""
        ...

    def sample(self, topic: str) -> Sample:
        """Return some records."""
        ...


@dataclass(frozen=True, slots=True)
class Reading:
    """The way in which the rows of a query are read."""

    limit: int | None = None
    as_json: bool = False
    follows: bool = False
    start: Start = Start.LATEST


class Interpreter:
    """Carries out one statement after the other; ``engine`` is called when a statement needs Spark, and not before."""

    def __init__(
        self, store: Store, topics: ClusterTopics, engine: Callable[[], Engine], new_id: Callable[[], str]
    ) -> None:
        self._store = store
        self._topics = topics
        self._engine = engine
        self._new_id = new_id

    def run(self, statement: Statement, reading: Reading) -> Result:
        """Carry out a statement.

        Raises:
            TidelogError: it cannot be carried out; nothing has changed, unless the message says so.
        """
        match statement:
            case Show():
                return self._show(statement.what)
            case Describe():
                return self._describe(statement.name)
            case CreateRelation():
                return self._create(statement)
            case CreateAs():
                return self._create_as(statement)
            case CreateQuery():
                return self._create_query(statement)
            case Drop():
                return self._drop(statement)
            case Steer():
                return self._steer(statement)
            case Insert():
                return self._insert(statement, reading)
            case Explain():
                return self._explain(statement)
            case SparkStatement():
                return self._query(statement, reading)

    def _query(self, statement: SparkStatement, reading: Reading) -> Rows:
        resolve = self._resolver(self._store.read())
        if reading.follows or statement.mode is not None:
            return self._engine().follow(
                statement.text, resolve, reading.start, statement.mode, as_json=reading.as_json
            )
        return self._engine().rows(statement.text, resolve, reading.limit, as_json=reading.as_json)

    def _insert(self, statement: Insert, reading: Reading) -> Done:
        if reading.follows:
            raise SqlError("INSERT INTO runs once; CREATE QUERY name AS INSERT INTO ... makes a query that goes on")
        catalog = self._store.read()
        target = catalog.relation(statement.target)

        def plan(columns: tuple[Column, ...]) -> WritePlan:
            if target is not None:
                return write_plan(target, statement.columns)
            names = statement.columns or tuple(column.name for column in columns)
            if len(names) != len(columns):
                raise SqlError(f"{len(names)} columns are named, and the query has {len(columns)}")
            named = [replace(column, name=name) for column, name in zip(columns, names, strict=True)]
            return write_plan(free_relation(statement.target, named))

        if target is None and statement.target not in self._topics.partitions():
            raise SqlError(
                f"there is no stream, table or topic {statement.target}; CREATE STREAM or CREATE TABLE first"
            )
        count = self._engine().insert(statement.select, self._resolver(catalog), plan)
        return Done(f"inserted {count:,} row{'' if count == 1 else 's'} into {statement.target}")

    def _explain(self, statement: Explain) -> Rows:
        catalog = self._store.read()
        select = catalog.existing_query(statement.query).select if statement.query else statement.select
        plan = self._engine().explain(select, self._resolver(catalog))
        return _table(("plan",), [(line,) for line in plan.splitlines()])

    def _show(self, what: str) -> Rows:
        if what == "TOPICS":
            found = sorted(self._topics.partitions().items())
            return _table(("topic", "partitions", "replicas"), [(name, *numbers) for name, numbers in found])
        catalog = self._store.read()
        if what == "QUERIES":
            columns: tuple[str, ...] = ("query", "sink", "reads", "state", "statement")
            return _table(columns, [_query_row(query) for query in catalog.queries])
        rows = [
            (each.name, each.topic, each.key_format, each.format)
            for each in catalog.relations
            if each.kind.name == what.removesuffix("S")
        ]
        return _table((what.removesuffix("S").lower(), "topic", "key_format", "format"), rows)

    def _describe(self, name: str) -> Rows:
        catalog = self._store.read()
        query = catalog.query(name)
        relation = catalog.relation(name)
        if relation is None and query is not None:
            names = ("query", "sink", "reads", "state", "statement")
            return _table(("property", "value"), list(zip(names, _query_row(query), strict=True)))
        relation = relation or self._inferred(name)
        return _table(("column", "type", "from"), [_column_row(relation, column) for column in relation.columns])

    def _create(self, statement: CreateRelation) -> Done:
        catalog = self._store.read()
        if statement.if_not_exists and catalog.relation(statement.name) is not None:
            return Done(f"{statement.kind} {statement.name} exists already")
        settings = _with_schemas(statement.name, creation.relation_settings(statement))
        existing = settings.topic in self._topics.partitions()
        if not existing and settings.partitions is None:
            raise SqlError(f"the topic {settings.topic} does not exist; WITH (partitions=N) creates it")
        columns = statement.columns
        if not columns:
            if not existing:
                raise SqlError(f"{statement.kind} {statement.name} needs columns: the topic has no records")
            columns = creation.inferred_columns(statement, self._inferred(settings.topic), settings.format)
        relation = creation.relation_of(statement, settings, columns)
        changes = catalog.create(relation, is_replacing=statement.is_replacing)
        self._create_topic(relation, settings)
        self._store.write(changes)
        return Done(f"created {relation.kind} {relation.name}")

    def _create_as(self, statement: CreateAs) -> Done:
        catalog = self._store.read()
        if statement.if_not_exists and catalog.relation(statement.name) is not None:
            return Done(f"{statement.kind} {statement.name} exists already")
        settings = _with_schemas(statement.name, creation.as_settings(statement))
        mode = creation.mode_of(statement)
        analysis = self._engine().analyze(statement.select, self._defined(catalog), mode)
        relation = creation.relation_of_query(statement, settings, analysis.columns)
        query = Query(
            statement.name,
            self._id(statement.name),
            statement.name,
            statement.select,
            _names(catalog, analysis.reads),
            mode,
            settings.start,
        )
        changes = catalog.create(relation, query, is_replacing=statement.is_replacing)
        self._create_topic(relation, settings)
        self._store.write(changes)
        return Done(f"created {relation.kind} {relation.name} and its query; tidelog sql --serve runs it")

    def _create_query(self, statement: CreateQuery) -> Done:
        catalog = self._store.read()
        if statement.if_not_exists and catalog.query(statement.name) is not None:
            return Done(f"query {statement.name} exists already")
        if catalog.relation(statement.name) is not None:
            raise SqlError(f"{statement.name} is a stream or table, whose query may have its name; choose another name")
        start = creation.query_start(statement)
        insert = statement.insert
        target = catalog.relation(insert.target)
        if target is None:
            raise SqlError(f"there is no stream or table {insert.target}; CREATE STREAM or CREATE TABLE first")
        mode = creation.mode_for(target.kind, statement.mode)
        analysis = self._engine().analyze(insert.select, self._defined(catalog), mode)
        creation.check_insert(write_plan(target, insert.columns), analysis.columns)
        query = Query(
            statement.name,
            self._id(statement.name),
            target.name,
            insert.select,
            _names(catalog, analysis.reads),
            mode,
            start,
            columns=insert.columns,
        )
        self._store.write(catalog.create_query(query, is_replacing=statement.is_replacing))
        return Done(f"created query {query.name}; tidelog sql --serve runs it")

    def _drop(self, statement: Drop) -> Done:
        catalog = self._store.read()
        if statement.if_exists and catalog.relation(statement.name) is None:
            return Done(f"there is no {statement.kind} {statement.name}")
        self._store.write(catalog.drop(statement.kind, statement.name))
        return Done(f"dropped {statement.kind} {statement.name}; its topic stays")

    def _steer(self, statement: Steer) -> Done:
        catalog = self._store.read()
        query = catalog.existing_query(statement.query)
        changes: Changes
        if statement.action == "TERMINATE":
            changes, text = catalog.set_query(None, query.name), "terminated"
        else:
            is_paused = statement.action == "PAUSE"
            changes = catalog.set_query(replace(query, is_paused=is_paused), query.name)
            text = "paused" if is_paused else "resumed"
        self._store.write(changes)
        return Done(f"{text} query {query.name}")

    def _create_topic(self, relation: Relation, settings: creation.Settings) -> None:
        config = {"cleanup.policy": "compact"} if relation.kind.name == "TABLE" else {}
        self._topics.create(relation.topic, settings.partitions or -1, settings.replicas or -1, config)

    def _resolver(self, catalog: Catalog) -> Resolve:
        """Return the rule for names in a query that runs now: a topic without a definition has inferred columns."""

        def resolve(name: str) -> Relation | None:
            relation = catalog.relation(name)
            if relation is None and name in self._topics.partitions():
                relation = self._inferred(name)
            return relation

        return resolve

    def _defined(self, catalog: Catalog) -> Resolve:
        """Return the rule for names in a persistent query, whose columns must be the same after each restart."""

        def resolve(name: str) -> Relation | None:
            relation = catalog.relation(name)
            if relation is None and name in self._topics.partitions():
                text = f"CREATE STREAM `{name}` WITH (topic='{name}')"
                raise SqlError(f"{name} is a topic without a definition, which may change; {text} stores its columns")
            return relation

        return resolve

    def _inferred(self, topic: str) -> Relation:
        sample = self._topics.sample(topic)
        return infer_relation(topic, sample.keys, sample.values)

    def _id(self, name: str) -> str:
        return f"{name.lower()}-{self._new_id()}"


def _table(columns: tuple[str, ...], rows: Sequence[Sequence[object]]) -> Rows:
    return Rows(columns, iter([rows]))


def _with_schemas(name: str, settings: creation.Settings) -> creation.Settings:
    return replace(settings, options=with_schemas(name, settings.options))


def _names(catalog: Catalog, reads: Iterable[str]) -> tuple[str, ...]:
    found = (catalog.relation(name) for name in reads)
    return tuple(relation.name for relation in found if relation is not None)


def _query_row(query: Query) -> tuple[str, ...]:
    state = "paused" if query.is_paused else "running"
    return (query.name, query.sink, ", ".join(query.reads), state, " ".join(query.select.split()))


def _column_row(relation: Relation, column: Column) -> tuple[str, ...]:
    source = column.part.value if column.part is not Part.METADATA else str(column.metadata)
    if relation.watermark is not None and relation.watermark.column.lower() == column.name.lower():
        source += f", watermark {relation.watermark.delay}"
    return (column.name, column.type, source)
