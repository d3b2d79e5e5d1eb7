"""The server's queries are those of the catalog; one that fails starts again, later each time."""

from __future__ import annotations

from dataclasses import replace

from tidelog_spark.sql.catalog import Catalog
from tidelog_spark.sql.definitions import Column, Kind, Part, Query, Relation
from tidelog_spark.sql.server import QueryServer
from tidelog_spark.sql.supervision import MAX_DELAY_MS, STABLE_MS, StartQuery, StopQuery, Supervision

SINK = Relation("s", Kind.STREAM, "s", (Column("k", "INT", Part.KEY), Column("n", "INT")))
QUERY = Query("q", "q-1", "s", "SELECT 1, 2")


def catalog_of(*definitions: Relation | Query) -> Catalog:
    return Catalog({f"{'queries' if isinstance(d, Query) else 'relations'}/{d.name}": d for d in definitions})


def started(query: Query = QUERY) -> Supervision:
    supervision = Supervision()
    [start] = supervision.step(catalog_of(SINK, query), 0)
    assert start == StartQuery(query, SINK)
    supervision.started(start, 0)
    return supervision


def test_query_of_the_catalog_starts_once() -> None:
    supervision = started()
    assert supervision.step(catalog_of(SINK, QUERY), 1) == []
    assert [*supervision.running] == ["q-1"]


def test_query_that_is_terminated_or_paused_stops() -> None:
    assert started().step(catalog_of(SINK), 1) == [StopQuery("q-1", "terminated")]
    assert started().step(catalog_of(SINK, replace(QUERY, is_paused=True)), 1) == [StopQuery("q-1", "paused")]


def test_query_that_is_replaced_stops_before_the_new_one_starts() -> None:
    new = replace(QUERY, id="q-2")
    assert started().step(catalog_of(SINK, new), 1) == [StopQuery("q-1", "terminated"), StartQuery(new, SINK)]
    sink = replace(SINK, options={"sink.semantics": "at-least-once"})
    assert started().step(catalog_of(sink, QUERY), 1) == [StopQuery("q-1", "replaced"), StartQuery(QUERY, sink)]


def test_query_that_fails_starts_again_after_a_delay_that_doubles_up_to_a_minute() -> None:
    supervision, now_ms, delays = Supervision(), 0, []
    for _ in range(9):
        [start] = supervision.step(catalog_of(SINK, QUERY), now_ms)
        assert isinstance(start, StartQuery)
        supervision.started(start, now_ms)
        delays.append(supervision.failed("q-1", now_ms))
        assert supervision.step(catalog_of(SINK, QUERY), now_ms + delays[-1] - 1) == []
        now_ms += delays[-1]
    assert delays == [1000, 2000, 4000, 8000, 16000, 32000, 60000, 60000, MAX_DELAY_MS]
    [start] = supervision.step(catalog_of(SINK, QUERY), now_ms)
    assert isinstance(start, StartQuery)
    supervision.started(start, now_ms)
    assert supervision.failed("q-1", now_ms + STABLE_MS) == 1000


class FakeRunning:
    def __init__(self) -> None:
        self.failure: str | None = None
        self.is_active = True

    def stop(self) -> None:
        self.is_active = False


class FakeEngine:
    def __init__(self) -> None:
        self.runs: list[tuple[str, str, FakeRunning]] = []

    def start(self, name: str, *arguments: object) -> FakeRunning:
        running = FakeRunning()
        self.runs.append((name, str(arguments[-1]), running))
        return running


class FakeStore:
    def __init__(self, catalog: Catalog) -> None:
        self.catalog = catalog

    def read(self) -> Catalog:
        return self.catalog

    def write(self, changes: object) -> None:
        raise AssertionError("the server only reads")


def test_server_runs_the_catalog_and_restarts_a_query_from_its_checkpoint() -> None:
    store, engine, said = FakeStore(catalog_of(SINK, QUERY)), FakeEngine(), list[str]()
    server = QueryServer(store, engine, "/checkpoints/", said.append)
    server.step()
    [(name, checkpoint, running)] = engine.runs
    assert (name, checkpoint) == ("q-1", "/checkpoints/q-1")
    running.is_active, running.failure = False, "no leader"
    server.step()
    assert said[-1] == "q-1 failed and starts again in 1 s: no leader"
    store.catalog = catalog_of(SINK, replace(QUERY, id="q-2"))
    server.step()
    assert [checkpoint for _, checkpoint, _ in engine.runs] == ["/checkpoints/q-1", "/checkpoints/q-2"]
    store.catalog = catalog_of(SINK)
    server.step()
    assert said[-1] == "stopped q-2: terminated"
    assert not engine.runs[-1][2].is_active
