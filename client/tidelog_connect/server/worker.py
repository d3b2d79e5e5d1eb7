"""`Worker`: one member of the group. It answers the REST API, and supervises the queries while it leads.

One lock protects the state. A change is decided, written and replayed under it, so that a decision sees all changes
before it. When a write fails, the worker does not know whether its records count: it leads no more, stops its queries,
and reads the topics anew before it leads again.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from tidelog_connect.connectors.offsets import (
    parsed_partition,
    partition_key,
    sink_entry,
    sink_offset_of,
    sink_partition_of,
)
from tidelog_connect.connectors.registry import Registry
from tidelog_connect.herder import answers, records
from tidelog_connect.herder.errors import RequestError, bad_request
from tidelog_connect.herder.herder import Herder, Result
from tidelog_connect.herder.records import Record, Store
from tidelog_connect.herder.state import GroupState
from tidelog_connect.herder.supervision import StartConnector, Supervisor
from tidelog_connect.metrics import ConnectCounts
from tidelog_connect.rest.loggers import Loggers
from tidelog_connect.server.queries import Ended, Event, Failed, Queries, Started, TopicsUsed
from tidelog_connect.server.storage import Storage
from tidelog_foundation.errors import TidelogError
from tidelog_foundation.metrics import Family

logger = logging.getLogger(__name__)

_SINK = "sink"


class Worker:
    """Lifecycle: `follow` or `replay` until `lead`, then `step` and requests until `resign`. Thread-safe."""

    def __init__(
        self,
        worker_id: str,
        url: str,
        registry: Registry,
        storage: Storage,
        queries: Queries,
        *,
        max_connectors: int,
        version: str,
        counts: ConnectCounts,
    ) -> None:
        self.registry = registry
        self.loggers = Loggers()
        self._counts = counts
        self._worker_id, self._url, self._version = worker_id, url, version
        self._storage, self._queries = storage, queries
        self._max_connectors = max_connectors
        self._lock = threading.RLock()
        self._supervisor: Supervisor | None = None
        self._epoch = -1
        self._failure: TidelogError | None = None
        """The error of a write whose outcome is unknown, since which this worker decides nothing."""
        self.wake = threading.Event()
        """Set when `step` has something to do."""
        self.follow()

    @property
    def state(self) -> GroupState:
        """The state of the group."""
        return self._state

    @property
    def herder(self) -> Herder:
        """The herder over the state."""
        return self._herder

    @property
    def leads(self) -> bool:
        """True while this worker leads."""
        return self._supervisor is not None

    def follow(self) -> None:
        """Begin with an empty state, to which all records are replayed."""
        with self._lock:
            self._state = GroupState()
            self._herder = Herder(self._state, self.registry, self._max_connectors)

    def replay(self, record: Record, offset: int) -> None:
        """Apply a record that was read from a topic."""
        with self._lock:
            self._apply(record, offset)

    def lead(self, epoch: int) -> None:
        """Lead from now on, with a state that has all records of the topics."""
        with self._lock:
            self._epoch, self._failure = epoch, None
            self._supervisor = Supervisor(self._worker_id, epoch, self._version, self.registry.task_configs)
        self._counts.leads()
        self.wake.set()
        logger.info("worker %s leads with epoch %d", self._worker_id, epoch)

    def resign(self) -> None:
        """Lead no more, and end all queries."""
        with self._lock:
            was_leading, self._supervisor = self._supervisor is not None, None
        if was_leading:
            logger.info("worker %s leads no more", self._worker_id)
            self._queries.stop_all()

    def step(self) -> None:
        """Take the events of queries, and start and stop queries. Does nothing on a worker that does not lead.

        Raises:
            TidelogError: a write failed; the caller lets this worker `resign`.
        """
        with self._lock:
            if self._supervisor is None:
                return
            if self._failure is not None:
                raise self._failure
            for event in self._queries.events():
                self._write(self._records_of(self._supervisor, event))
            step = self._supervisor.step(self._state)
            self._write(step.records)
            for command in step.commands:
                if isinstance(command, StartConnector):
                    self._queries.start(command, self._epoch)
                else:
                    self._queries.stop(command)

    def families(self) -> list[Family]:
        """Return the metrics."""
        with self._lock:
            return list(self._counts.families(self._state, leads=self.leads))

    def cluster_id(self) -> str:
        """Return the id of the cluster."""
        return self._storage.cluster_id()

    def url(self) -> str:
        """Return the URL of this worker's listener."""
        return self._url

    def leader_url(self) -> str | None:
        """Return the URL of the leader; None if this worker leads.

        Raises:
            RequestError: 503, no worker leads at present.
        """
        if self.leads:
            return None
        leader = self._state.leader
        if leader is None or leader.url == self._url:
            raise _no_leader()
        return leader.url

    def session_key(self) -> str:
        """Return the key that signs requests to the leader, empty if none is known."""
        leader = self._state.leader
        return "" if leader is None else leader.session_key

    def health(self) -> tuple[bool, str]:
        """Tell whether a worker leads, as far as this one knows."""
        if self.leads or self._state.leader is not None:
            return True, "Worker has completed startup and is ready to handle requests."
        return False, "Worker has not completed startup: no worker of the group leads yet."

    def change(self, decide: Callable[[Herder], Result]) -> Any:
        """Decide a change, write and apply its records, and return its response.

        Raises:
            RequestError: what ``decide`` raises, or 503: this worker leads no more.
        """
        with self._lock:
            if self._supervisor is None or self._failure is not None:
                raise _no_leader()
            result = decide(self._herder)
            self._write(result.records)
        self.wake.set()
        return result.response

    def offsets(self, name: str) -> list[dict[str, Any]]:
        """Return the offsets of a connector."""
        if self._kind(name) == _SINK:
            found = sorted(self._storage.sink_offsets(name).items())
            return [sink_entry(*key, offset) for key, offset in found]
        source = sorted(self._storage.source_offsets(name).items())
        return [{"partition": parsed_partition(key), "offset": dict(offset)} for key, offset in source]

    def alter_offsets(self, name: str, offsets: Sequence[tuple[Mapping[str, Any], Mapping[str, Any] | None]]) -> None:
        """Set offsets of a stopped connector.

        Raises:
            RequestError: 400, they are not those of the connector.
        """
        with self._lock:
            self._herder.check_stopped(name)
            try:
                if self._kind(name) == _SINK:
                    of_sink = {sink_partition_of(each): sink_offset_of(offset) for each, offset in offsets}
                    self._storage.write_sink_offsets(name, of_sink)
                    return
                connector = self.registry.find(self._state.connectors[name].config["connector.class"])
                for partition, offset in offsets:
                    connector.check_offset(partition, offset)
            except ValueError as error:
                raise bad_request(str(error)) from error
            self._storage.write_source_offsets(name, {partition_key(each): offset for each, offset in offsets})

    def reset_offsets(self, name: str) -> None:
        """Delete the offsets of a stopped connector."""
        with self._lock:
            self._herder.check_stopped(name)
            if self._kind(name) == _SINK:
                self._storage.write_sink_offsets(name, dict.fromkeys(self._storage.sink_offsets(name)))
            else:
                self._storage.write_source_offsets(name, dict.fromkeys(self._storage.source_offsets(name)))

    def _kind(self, name: str) -> str:
        return self.registry.kind(answers.connector_of(self._state, name).config["connector.class"])

    def _write(self, written: Sequence[Record]) -> None:
        if not written:
            return
        try:
            self._storage.write(written)
        except TidelogError as error:
            self._failure = error
            self.wake.set()
            raise
        for record in written:
            self._apply(record, self._epoch)

    def _apply(self, record: Record, offset: int) -> None:
        self._state.replay(record, offset)
        if record.store is Store.CONFIG and record.key.startswith(records.LOGGER_PREFIX) and record.value is not None:
            self.loggers.set_level(record.key.removeprefix(records.LOGGER_PREFIX), str(record.value.get("level")))

    def _records_of(self, supervisor: Supervisor, event: Event) -> Sequence[Record]:
        match event:
            case Started(name, run):
                self._counts.started(is_success=True)
                return supervisor.started(self._state, name, run)
            case Failed(name, run, trace, is_planned):
                logger.error("connector %s has failed: %s", name, trace)
                if is_planned:
                    self._counts.of(name).failures += 1
                else:
                    self._counts.started(is_success=False)
                return supervisor.failed(self._state, name, run, trace, is_planned=is_planned)
            case Ended(name, run):
                supervisor.ended(name, run)
                return ()
            case TopicsUsed(name, topics):
                new = sorted(topics - self._state.topics.get(name, set())) if name in self._state.connectors else ()
                return [records.topic_record(name, topic, 0, int(time.time() * 1000)) for topic in new]


def _no_leader() -> RequestError:
    return RequestError(503, "No worker of the group leads at present; try again")
