"""The statements that Tidelog adds to Spark SQL. All other text is a `SparkStatement`. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from tidelog_spark.sql.definitions import Column, Kind, OutputMode, Watermark


@dataclass(frozen=True, slots=True)
class Creation:
    """The beginning of each CREATE. ``options`` are those of WITH."""

    name: str
    options: Mapping[str, str] = field(default_factory=dict, kw_only=True)
    is_replacing: bool = field(default=False, kw_only=True)
    if_not_exists: bool = field(default=False, kw_only=True)


@dataclass(frozen=True, slots=True)
class CreateRelation(Creation):
    """CREATE STREAM or TABLE over a topic. Without columns, they are inferred from records of the topic."""

    kind: Kind
    columns: tuple[Column, ...] = ()
    watermark: Watermark | None = None


@dataclass(frozen=True, slots=True)
class CreateAs(Creation):
    """CREATE STREAM or TABLE AS SELECT: a relation, and a query of the same name that writes it."""

    kind: Kind
    select: str
    mode: OutputMode | None = None


@dataclass(frozen=True, slots=True)
class Insert:
    """INSERT INTO: once, the rows of a query, to a relation or to a topic without a definition."""

    target: str
    select: str
    columns: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class CreateQuery(Creation):
    """CREATE QUERY name AS INSERT INTO: a persistent query that writes to an existing relation."""

    insert: Insert
    mode: OutputMode | None = None


@dataclass(frozen=True, slots=True)
class Drop:
    """DROP STREAM or TABLE; the topic stays."""

    kind: Kind
    name: str
    if_exists: bool = False


@dataclass(frozen=True, slots=True)
class Show:
    """SHOW STREAMS, TABLES, TOPICS or QUERIES."""

    what: str


@dataclass(frozen=True, slots=True)
class Describe:
    """DESCRIBE of a stream, a table, a query or a topic."""

    name: str


@dataclass(frozen=True, slots=True)
class Explain:
    """EXPLAIN of a query's text, or of a persistent query by its name."""

    select: str = ""
    query: str = ""


@dataclass(frozen=True, slots=True)
class Steer:
    """TERMINATE, PAUSE or RESUME of a persistent query."""

    action: str
    query: str


@dataclass(frozen=True, slots=True)
class SparkStatement:
    """Text for Spark. ``mode`` is that of EMIT, which makes the query a stream."""

    text: str
    mode: OutputMode | None = None


Statement = CreateRelation | CreateAs | CreateQuery | Insert | Drop | Show | Describe | Explain | Steer | SparkStatement
