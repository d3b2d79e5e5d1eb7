"""A worker of ``tidelog connect`` whose topics and queries are in memory."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from tidelog_connect.connectors.file_stream import FileStreamSinkConnector, FileStreamSourceConnector
from tidelog_connect.connectors.registry import Registry
from tidelog_connect.herder.records import Record
from tidelog_connect.herder.supervision import StartConnector, StopConnector
from tidelog_connect.metrics import ConnectCounts
from tidelog_connect.server.queries import Ended, Event, Failed, Started, TopicsUsed
from tidelog_connect.server.worker import Worker


class MemoryStorage:
    """The topics as lists. `refusal` is raised by the next write."""

    def __init__(self) -> None:
        self.written: list[Record] = []
        self.of_sources: dict[str, dict[str, Mapping[str, Any]]] = {}
        self.of_sinks: dict[str, dict[tuple[str, int], int]] = {}
        self.refusal: Exception | None = None

    def cluster_id(self) -> str:
        return "memory"

    def write(self, records: Sequence[Record]) -> None:
        if self.refusal is not None:
            refusal, self.refusal = self.refusal, None
            raise refusal
        self.written += records

    def source_offsets(self, name: str) -> Mapping[str, Mapping[str, Any]]:
        return self.of_sources.get(name, {})

    def write_source_offsets(self, name: str, offsets: Mapping[str, Mapping[str, Any] | None]) -> None:
        merged = {**self.of_sources.get(name, {}), **offsets}
        self.of_sources[name] = {key: value for key, value in merged.items() if value is not None}

    def sink_offsets(self, name: str) -> Mapping[tuple[str, int], int]:
        return self.of_sinks.get(name, {})

    def write_sink_offsets(self, name: str, offsets: Mapping[tuple[str, int], int | None]) -> None:
        merged = {**self.of_sinks.get(name, {}), **offsets}
        self.of_sinks[name] = {key: value for key, value in merged.items() if value is not None}


class MemoryQueries:
    """Queries that start and end at once. `topics` are those that a connector uses when it starts."""

    def __init__(self) -> None:
        self.running: dict[str, int] = {}
        self.topics: dict[str, frozenset[str]] = {}
        self._events: list[Event] = []

    def start(self, command: StartConnector, epoch: int) -> None:
        assert command.name not in self.running
        self.running[command.name] = command.run
        self._events.append(Started(command.name, command.run))
        if command.name in self.topics:
            self._events.append(TopicsUsed(command.name, self.topics[command.name]))

    def stop(self, command: StopConnector) -> None:
        assert self.running.pop(command.name) == command.run
        self._events.append(Ended(command.name, command.run))

    @property
    def pending(self) -> bool:
        """True if there are events."""
        return bool(self._events)

    def fail(self, name: str, trace: str) -> None:
        self._events.append(Failed(name, self.running.pop(name), trace))

    def stop_all(self) -> None:
        self.running.clear()
        self._events.clear()

    def events(self) -> list[Event]:
        found, self._events = self._events, []
        return found


class WorkerInMemory:
    """A worker that leads, and its parts."""

    def __init__(self, url: str = "http://127.0.0.1:8083", *, max_connectors: int = 100) -> None:
        self.storage = MemoryStorage()
        self.queries = MemoryQueries()
        registry = Registry((FileStreamSinkConnector, FileStreamSourceConnector), "0.1.0")
        self.worker = Worker(
            url.removeprefix("http://"),
            url,
            registry,
            self.storage,
            self.queries,
            max_connectors=max_connectors,
            version="0.1.0",
            counts=ConnectCounts(),
        )

    def settle(self) -> None:
        """Step until nothing changes."""
        before = -1
        while self.queries.pending or len(self.storage.written) != before:
            before = len(self.storage.written)
            self.worker.step()
