"""The base of readers and members of a group: one consumer at a time polls, as one process of the history."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from tidelog.message import Message
from tidelog_chaos.history import HistoryWriter, Op
from tidelog_chaos.metrics import Meter
from tidelog_chaos.workload.client import Client
from tidelog_chaos.workload.keys import Keys, key_of
from tidelog_chaos.workload.library import RunConsumer
from tidelog_foundation.errors import ErrorCode, TidelogError

_POLL_S = 0.25


class Poller(Client):
    """A client that polls and records the results."""

    def __init__(
        self, name: str, keys: Keys, history: HistoryWriter, meter: Meter, new_process: Callable[[], int]
    ) -> None:
        super().__init__(name, keys, history, meter, new_process)
        self._process = new_process()

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
