"""The part common to workloads with transactions: the wait until all have ended, and reads of committed records."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from typing import Any

from tidelog.admin import IsolationLevel, OffsetSpec
from tidelog.message import Message, TopicPartition
from tidelog_chaos.deadline import Deadline
from tidelog_chaos.history import TRANSACTIONS, Op
from tidelog_chaos.workload.client import Client
from tidelog_chaos.workload.keys import Keys, key_of, partition_of
from tidelog_chaos.workload.library import RunConsumer
from tidelog_chaos.workload.reader import AT_MOST_IN_THE_END, Reader
from tidelog_chaos.workload.settings import transactional_config, transactional_consumer
from tidelog_chaos.workload.transactional import TransactionalWriter
from tidelog_chaos.workload.workload import Workload
from tidelog_foundation.errors import ErrorCode

LEAST_TOPICS = 2
"""The inputs and the outputs."""
CALL_S = 10.0
NEVER = 1 << 40
"""So many writes are never reached: the topics stay."""
_LOOK_S = 0.5
_MARGIN_S = 60.0


class SettlingWorkload(Workload):
    """Transactions, on topics that stay the same in the whole run."""

    def _make_keys(self) -> Keys:
        settings = self._settings
        topics = max(LEAST_TOPICS, settings.topics)
        return Keys(self._create, self._prefix, topics, settings.partitions, NEVER)

    def _writer(self, number: int) -> Client:
        settings = self._settings
        return TransactionalWriter(
            f"writer {number}",
            self._producer_config(f"{self._prefix}-writer-{number}"),
            self._shared,
            settings.rate_per_s / settings.producers,
            self._dice.randrange(2**32),
        )

    def _final_readers(self) -> Sequence[Reader]:
        config = {**self._clients_servers, **transactional_consumer(self._settings.consumer)}
        return [_FinalReader("final reader", {**config, "enable.partition.eof": True}, self._shared)]

    def _producer_config(self, transactional_id: str) -> dict[str, Any]:
        return {**self._clients_servers, **transactional_config(self._settings.producer, transactional_id)}

    def _states(self) -> str:
        """Return the states of the transactions in words."""
        raise NotImplementedError

    def _settle(self, deadline: Deadline) -> list[str]:
        """Wait until the last stable offset of each partition is its high watermark, and note those that stay behind.

        Return a sentence about the transactions if there are such partitions.

        Raises:
            TidelogError: The offsets cannot be known.
            TimeoutError: The deadline passes before the limit of transactions.
        """
        config = transactional_config(self._settings.producer, "")
        limit_s = int(config["transaction.timeout.ms"]) / 1_000 + _MARGIN_S
        limit = deadline.within(limit_s)
        while (behind := self._behind()) and not limit.is_over:
            time.sleep(_LOOK_S)
        places = ", ".join(f"{key} is stable up to {stable} of {high}" for key, (stable, high) in behind.items())
        if behind and limit.limit_s < limit_s:
            raise TimeoutError(f"{places} after {limit.limit_s:.0f} s; they may need {limit_s:.0f} s")
        self._shared.history.note("settled", {"limit_s": limit_s, "behind": behind}, process=TRANSACTIONS)
        return [f"{places} after {limit_s:.0f} s; {self._states()}"] if behind else []

    def _behind(self) -> dict[str, list[int]]:
        """Return the last stable offset and the high watermark of each partition with an open transaction."""
        stable, high = self._latest(IsolationLevel.READ_COMMITTED), self._latest(IsolationLevel.READ_UNCOMMITTED)
        return {key: [offset, high[key]] for key, offset in stable.items() if offset < high[key]}

    def _latest(self, isolation_level: IsolationLevel) -> dict[str, int]:
        partitions = [TopicPartition(*partition_of(key)) for key in self.keys.all]
        futures = self._admin.list_offsets(
            {at: OffsetSpec.latest() for at in partitions}, isolation_level=isolation_level, request_timeout=CALL_S
        )
        return {key_of(at.topic, at.partition): future.result(2 * CALL_S).offset for at, future in futures.items()}


class _FinalReader(Reader):
    """Reads to the ends of partitions as the library reports them: markers after the last record have no message."""

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self._ended: set[str] = set()

    def _read_to(self, consumer: RunConsumer, ends: Mapping[str, int]) -> set[str]:
        behind = {key for key, end in ends.items() if end > 0}
        self._ended.clear()
        while behind - self._ended and not (self._is_stalled or self._crashing.is_set()):
            before = len(self._ended)
            if self._poll(consumer, AT_MOST_IN_THE_END) or len(self._ended) > before:
                self.progress_s = time.monotonic()
        return behind - self._ended

    def _complete(self, invocation: Op, messages: Sequence[Message]) -> int:
        records = []
        for message in messages:
            error = message.error()
            if error is not None and error.error_code() is ErrorCode._PARTITION_EOF:
                self._ended.add(key_of(str(message.topic()), int(message.partition() or 0)))
            else:
                records.append(message)
        return super()._complete(invocation, records)
