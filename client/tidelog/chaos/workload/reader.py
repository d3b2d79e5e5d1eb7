"""One consumer, which is one process of the history: it assigns, polls and now and then crashes."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from tidelog.chaos.history import HistoryWriter, Op
from tidelog.chaos.metrics import Meter
from tidelog.chaos.workload.keys import Keys, key_of, partition_of
from tidelog.consumer import Consumer
from tidelog.errors import ErrorCode, KafkaError, TidelogError
from tidelog.message import OFFSET_BEGINNING, OFFSET_INVALID, Message, TopicPartition

_POLL_S = 0.25
_AT_MOST = 500
_AT_MOST_IN_THE_END = 2_000
_STALLED_S = 60.0


class Reader:
    """Reads what is written, from its thread, until :meth:`stop`; :meth:`read_everything` comes after that."""

    def __init__(
        self,
        name: str,
        config: Mapping[str, Any],
        keys: Keys,
        history: HistoryWriter,
        meter: Meter,
        new_process: Callable[[], int],
    ) -> None:
        self._config = {**config, "auto.offset.reset": "error"}
        self._keys = keys
        self._history = history
        self._meter = meter
        self._new_process = new_process
        self._process = new_process()
        self._assigned: list[str] = []
        self._stopping = threading.Event()
        self._crashing = threading.Event()
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        self.error: BaseException | None = None
        self.errors: dict[str, int] = {}
        """How often each error was reported."""

    def start(self) -> None:
        """Begin to read."""
        self._thread.start()

    def crash(self) -> None:
        """Throw the consumer away and go on with a new one, from the beginning of what is read now."""
        self._crashing.set()

    def give_up(self) -> None:
        """End, without waiting for it."""
        self._stopping.set()
        self._crashing.set()

    def stop(self) -> None:
        """Read no more and crash; raises what went wrong."""
        self._stopping.set()
        self._thread.join()
        if self.error is not None:
            raise self.error

    def read_everything(self, ends: Mapping[str, int]) -> list[str]:
        """Come back, assign everything, seek to the beginning and poll to the end: the offset given for each key.

        Returns the keys whose end was not reached while nothing new came for a minute.
        """
        with Consumer(self._config) as consumer:
            self._assign(consumer, sorted(ends), seek_to_beginning=True)
            behind = {key: end for key, end in ends.items() if end > 0}
            progress_s = time.monotonic()
            while behind and time.monotonic() - progress_s < _STALLED_S:
                if self._poll(consumer, _AT_MOST_IN_THE_END):
                    progress_s = time.monotonic()
                positions = consumer.position([TopicPartition(*partition_of(key)) for key in behind])
                for at in positions:
                    if at.offset != OFFSET_INVALID and at.offset >= behind[key_of(at.topic, at.partition)]:
                        del behind[key_of(at.topic, at.partition)]
        self._crash()
        return sorted(behind)

    def _run(self) -> None:
        try:
            while not self._stopping.is_set():
                self._crashing.clear()
                with Consumer(self._config) as consumer:
                    self._use(consumer)
                self._crash()
        except Exception as error:  # noqa: BLE001  # the outermost loop of the thread: stop() raises it
            self.error = error

    def _use(self, consumer: Consumer) -> None:
        while not (self._stopping.is_set() or self._crashing.is_set()):
            keys = self._keys.read
            if keys != self._assigned:
                self._assign(consumer, keys, seek_to_beginning=False)
            self._poll(consumer, _AT_MOST)

    def _assign(self, consumer: Consumer, keys: Sequence[str], *, seek_to_beginning: bool) -> None:
        """Assign keys: those that were assigned go on where they are, the others begin at the beginning."""
        invocation = self._history.invoke(self._process, "assign", list(keys), seek_to_beginning=seek_to_beginning)
        gone = [TopicPartition(*partition_of(key)) for key in self._assigned if key not in keys]
        new = [TopicPartition(*partition_of(key), OFFSET_BEGINNING) for key in keys if key not in self._assigned]
        consumer.incremental_unassign(gone)
        consumer.incremental_assign(new)
        self._assigned = list(keys)
        self._history.complete(invocation, "ok")

    def _poll(self, consumer: Consumer, at_most: int) -> int:
        invocation = self._history.invoke(self._process, "poll", [["poll"]])
        try:
            messages = consumer.consume(at_most, timeout=_POLL_S)
        except TidelogError as error:
            self._count(error.error)
            self._history.complete(invocation, "info", None, str(error))
            self._crashing.set()
            return 0
        return self._complete(invocation, messages)

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
                if error.error_code() is ErrorCode._AUTO_OFFSET_RESET:
                    # The consumer reads that partition no more: the checker sees why, a new consumer goes on.
                    self._crashing.set()
        text = "; ".join(dict.fromkeys(errors)) or None
        self._history.complete(invocation, "ok", [["poll", read]], text)
        self._meter.polled(sum(map(len, read.values())))
        return len(messages) - len(errors)

    def _count(self, error: KafkaError) -> None:
        self.errors[error.name()] = self.errors.get(error.name(), 0) + 1

    def _crash(self) -> None:
        self._history.complete(self._history.invoke(self._process, "crash"), "info")
        self._process = self._new_process()
        self._assigned = []
