"""The operations of a client that the tests use, and helpers built on them."""

from __future__ import annotations

import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable
from types import TracebackType
from typing import Any

from compat.clients.record import Received, Record

DEADLINE_S = 60.0
_POLL_S = 0.35
"""Not the 0.1 s after which kafka-python asks again for metadata: when its poll ends while it rejoins for what it then
learns, it forgets the assignment that comes, sends no heartbeats, and is out of the group after its session timeout."""
_HEARTBEAT_MS = 300
"""A member learns by a heartbeat that others have come or gone: by default, of 3 s, the tests would mostly wait."""


class Reader(ABC):
    """A consumer at work, used by one thread at a time; a context manager."""

    @abstractmethod
    def poll(self, timeout_s: float) -> list[Received]:
        """Return what has come, after at most ``timeout_s``."""

    @abstractmethod
    def assignment(self) -> set[int]:
        """Return the partitions of its one topic that it has now."""

    @abstractmethod
    def close(self) -> None:
        """Commit what :meth:`poll` has returned, if in a group, and leave."""

    def __enter__(self) -> Reader:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


class Client(ABC):
    """A client library or tool, unmodified."""

    name: str
    takes_timestamps = True
    takes_null_headers = True

    @abstractmethod
    def missing(self) -> str | None:
        """Return why it cannot be used here, None if it can."""

    @abstractmethod
    def produce(
        self, servers: str, topic: str, records: Iterable[Record], compression: str = "none", **config: Any
    ) -> None:
        """Write records with acks=all and return when all are acknowledged; the client's own error for one that is not.

        ``config`` are properties of Kafka with underscores, as far as the client has them.
        """

    @abstractmethod
    def reader(self, servers: str, topic: str, group: str | None = None, partitions: int = 1, **config: Any) -> Reader:
        """Return a consumer: of all ``partitions`` from their start, or as a member of a group, range-assigned."""

    def consume(
        self,
        servers: str,
        topic: str,
        count: int,
        partitions: int = 1,
        meanwhile: Callable[[int], None] = lambda read: None,
        **config: Any,
    ) -> list[Received]:
        """Return ``count`` records from the start of all partitions, by partition and offset.

        ``meanwhile`` is called with the number read so far, after every poll that returned some.
        """
        read: list[Received] = []
        with self.reader(servers, topic, partitions=partitions, **config) as reader:
            deadline = time.monotonic() + DEADLINE_S
            while len(read) < count:
                assert time.monotonic() < deadline, f"{self.name} read {len(read)} of {count} records of {topic}"
                if got := reader.poll(0.2):
                    read += got
                    meanwhile(len(read))
        return sorted(read, key=lambda record: (record.partition, record.offset))


class Member:
    """A member of a group, polled by a thread of its own until it is closed; a context manager."""

    def __init__(self, client: Client, servers: str, topic: str, group: str, **config: Any) -> None:
        self.name = client.name
        self.read: list[Received] = []
        self.assigned: set[int] = set()
        self.error: BaseException | None = None
        self._is_open = True
        if config.get("group_protocol") != "consumer":
            config = {"heartbeat_interval_ms": _HEARTBEAT_MS, **config}
        self._reader = lambda: client.reader(servers, topic, group, **config)
        self._thread = threading.Thread(target=self._run, name=f"{client.name} in {group}", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Commit, leave the group, and raise what went wrong in its thread."""
        self._is_open = False
        self._thread.join(DEADLINE_S)
        assert not self._thread.is_alive(), f"{self.name} does not close"
        if self.error is not None:
            raise self.error

    def __enter__(self) -> Member:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _run(self) -> None:
        try:
            with self._reader() as reader:
                while self._is_open:
                    self.read += reader.poll(_POLL_S)
                    self.assigned = reader.assignment()
        except BaseException as error:  # noqa: BLE001 - whatever it is, the test raises it
            self.error = error


def wait_for(holds: Callable[[], object], what: Callable[[], str] | str, timeout_s: float = DEADLINE_S) -> None:
    """Wait until a condition holds; AssertionError with ``what`` after the deadline."""
    deadline = time.monotonic() + timeout_s
    while not holds():
        assert time.monotonic() < deadline, f"not within {timeout_s} s: {what if isinstance(what, str) else what()}"
        time.sleep(0.05)
