"""The base of all clients of a run: a thread that works, crashes on request, and continues as another client."""

from __future__ import annotations

import threading
from abc import abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from tidelog.message import Message
from tidelog_chaos.background import ENDS_S, BackgroundThread
from tidelog_chaos.history import HistoryWriter, Op
from tidelog_chaos.metrics import Meter
from tidelog_chaos.workload.keys import Keys, key_of
from tidelog_chaos.workload.library import Library, RunConsumer
from tidelog_foundation.errors import ErrorCode, KafkaError, TidelogError


@dataclass(frozen=True, slots=True)
class Shared:
    """The parts that all clients of a run share; ``new_process`` returns the next process of the history."""

    library: Library
    keys: Keys
    history: HistoryWriter
    meter: Meter
    new_process: Callable[[], int]


class Client(BackgroundThread):
    """Works in its thread until :meth:`stop`; :meth:`_live` is one life of it, which a crash ends."""

    def __init__(self, name: str, config: Mapping[str, Any], shared: Shared) -> None:
        super().__init__(name)
        self._config = config
        self._library = shared.library
        self._keys = shared.keys
        self._history = shared.history
        self._meter = shared.meter
        self._new_process = shared.new_process
        self._crashing = threading.Event()
        self.error: BaseException | None = None
        self.errors: dict[str, int] = {}
        """The number of reports of each error."""

    def crash(self) -> None:
        """Discard the client with all its unreported operations, and continue with a new one."""
        self._crashing.set()

    def give_up(self) -> None:
        """Stop without waiting."""
        self.request_stop()
        self._crashing.set()

    def stop(self, timeout_s: float = ENDS_S) -> None:
        """Stop, wait for pending operations, and crash; raises the error of the thread.

        Raises:
            StillRunningError: An operation has not ended in time.
        """
        super().stop(timeout_s)
        if self.error is not None:
            raise self.error

    @property
    def _goes_on(self) -> bool:
        return not (self._stopping.is_set() or self._crashing.is_set())

    @abstractmethod
    def _live(self) -> None:
        """Work as one client until :attr:`_goes_on` is false."""

    def _run(self) -> None:
        try:
            while not self._stopping.is_set():
                self._crashing.clear()
                self._live()
        except Exception as error:  # noqa: BLE001  # the outermost loop of the thread: stop() raises it
            self.error = error

    def _count(self, error: KafkaError) -> None:
        self.errors[error.name()] = self.errors.get(error.name(), 0) + 1


_POLL_S = 0.25


class Poller(Client):
    """The base of readers and members of a group: one consumer at a time polls, as one process of the history."""

    def __init__(self, name: str, config: Mapping[str, Any], shared: Shared) -> None:
        super().__init__(name, config, shared)
        self._process = shared.new_process()

    def _poll(self, consumer: RunConsumer, at_most: int) -> int:
        """Poll once; return the number of records."""
        invocation = self._history.invoke(self._process, "poll", [["poll"]])
        try:
            messages = consumer.consume(at_most, timeout=_POLL_S)
        except TidelogError as error:
            self._count(error.error)
            self._history.complete(invocation, "info", None, str(error))
            self._crashing.set()
            return 0
        return self._complete(invocation, messages)

    def _told(self) -> Mapping[str, Any]:
        """Return further members for the line of a poll, such as its rebalance log."""
        return {}

    def _complete(self, invocation: Op, messages: Sequence[Message]) -> int:
        read: dict[str, list[list[int]]] = {}
        errors: list[str] = []
        for message in messages:
            error = message.error()
            if error is None:
                key = key_of(str(message.topic()), int(message.partition() or 0))
                read.setdefault(key, []).append([int(message.offset() or 0), int(message.value())])
            else:
                self._count(error)
                errors.append(f"{error.name()}: {error.str()}")
                if error.fatal() or error.error_code() is ErrorCode._AUTO_OFFSET_RESET:
                    # The consumer can no longer read, or not that partition: the checker sees why, and a new one
                    # continues.
                    self._crashing.set()
        text = "; ".join(dict.fromkeys(errors)) or None
        self._history.complete(invocation, "ok", [["poll", read]], text, **self._told())
        self._meter.polled(sum(map(len, read.values())))
        return len(messages) - len(errors)

    def _crash(self) -> None:
        """Record that the consumer is gone; a new process takes over."""
        self._history.complete(self._history.invoke(self._process, "crash"), "info")
        self._process = self._new_process()
