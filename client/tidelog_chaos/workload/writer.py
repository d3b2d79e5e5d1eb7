"""One producer that several processes of the history share, so that it has several batches in flight.

A process sends one value and waits for its outcome before it sends the next. A process whose send has an unknown
outcome is retired, and another takes its place, as histories require; the producer continues, as in applications.
"""

from __future__ import annotations

import functools
import logging
import random
import time
from collections.abc import Mapping
from typing import Any

from tidelog.message import Message
from tidelog_chaos.history import Op
from tidelog_chaos.workload.client import Client, Shared
from tidelog_chaos.workload.keys import partition_of
from tidelog_chaos.workload.library import RunProducer
from tidelog_foundation.errors import ErrorCode, KafkaError, TidelogError

logger = logging.getLogger(__name__)

_SERVE_S = 0.005
_FLUSH_S = 30.0


class Writer(Client):
    """Sends at a rate in its thread until :meth:`stop`, with a new producer after each :meth:`crash`."""

    def __init__(
        self, name: str, config: Mapping[str, Any], shared: Shared, processes: int, rate_per_s: float, seed: int
    ) -> None:
        super().__init__(name, config, shared)
        self._rate = rate_per_s
        self._dice = random.Random(seed)
        self._idle = [shared.new_process() for _ in range(processes)]
        self._pending: dict[int, Op] = {}

    def _live(self) -> None:
        self._use(self._library.producer(self._config))

    def _use(self, producer: RunProducer) -> None:
        """Send with one producer until it must crash or the work is over."""
        due_s = time.monotonic()
        while self._goes_on:
            now_s = time.monotonic()
            # Do not catch up on sends that were late because no process was idle.
            due_s = max(due_s, now_s - 0.2)
            if self._idle and now_s >= due_s:
                due_s += self._dice.uniform(0, 2) / self._rate
                self._send(producer)
                producer.poll(0)
            else:
                producer.poll(min(_SERVE_S, max(0.0, due_s - now_s)) if self._idle else _SERVE_S)
        if not self._crashing.is_set():
            deadline_s = time.monotonic() + _FLUSH_S
            while self._pending and time.monotonic() < deadline_s:
                producer.flush(0.2)
        producer.purge()
        producer.close(0)
        self._crash()

    def _send(self, producer: RunProducer) -> None:
        key = self._dice.choice(self._keys.written)
        value = self._keys.next_value(key)
        process = self._idle.pop(self._dice.randrange(len(self._idle)))
        invocation = self._pending[process] = self._history.invoke(process, "send", [["send", key, value]])
        topic, partition = partition_of(key)
        done = functools.partial(self._reported, invocation)
        try:
            producer.produce(topic, str(value), partition=partition, on_delivery=done)
        except TidelogError as error:
            self._complete(invocation, "fail", None, error.error)
        except BufferError:
            self._complete(invocation, "fail", None, KafkaError(ErrorCode._QUEUE_FULL))

    def _reported(self, invocation: Op, error: KafkaError | None, message: Message) -> None:
        if self._pending.get(int(invocation.process)) is not invocation:
            return
        if error is None:
            self._complete(invocation, "ok", message.offset(), None)
        else:
            self._complete(invocation, self._library.outcome(error.error_code()), None, error)

    def _complete(self, invocation: Op, outcome: Any, offset: int | None, error: KafkaError | None) -> None:
        [[f, key, value]] = invocation.value
        known = offset if offset is not None and offset >= 0 else None
        completed = [[f, key, [known, value]]] if outcome == "ok" else None
        text = None if error is None else f"{error.name()}: {error.str()}"
        done = self._history.complete(invocation, outcome, completed, text)
        self._meter.sent(outcome, (done.time_ns - invocation.time_ns) / 1e6)
        if error is not None:
            self._count(error)
            if error.fatal():
                # This producer can no longer send: a new one continues.
                self._crashing.set()
        process = int(invocation.process)
        del self._pending[process]
        self._idle.append(self._new_process() if outcome == "info" else process)

    def _crash(self) -> None:
        """Record that the producer is gone: unreported sends are unknown, and new processes take over."""
        for invocation in list(self._pending.values()):
            self._complete(invocation, "info", None, KafkaError(ErrorCode._PURGE_INFLIGHT, "the client crashed"))
        for process in self._idle:
            self._history.complete(self._history.invoke(process, "crash"), "info")
        self._idle = [self._new_process() for _ in self._idle]
