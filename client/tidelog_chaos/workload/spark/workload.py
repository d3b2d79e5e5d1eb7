"""The workload spark: a streaming query copies the input topics to the output topics exactly once.

The first half of the topics are inputs, each of which has an output with as many partitions. Producers with and without
transactions send to the inputs. The query runs in processes of its own, which are killed as well; a record keeps its
partition and its value. Readers with read_committed read inputs and outputs, and everything again in the end.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from typing import Any

from tidelog.admin import IsolationLevel
from tidelog_chaos.deadline import Deadline
from tidelog_chaos.history import SPARK
from tidelog_chaos.workload.client import Client
from tidelog_chaos.workload.keys import Keys, key_of, partition_of
from tidelog_chaos.workload.observer import STATE_TOPIC
from tidelog_chaos.workload.reader import Reader
from tidelog_chaos.workload.settings import transactional_consumer
from tidelog_chaos.workload.settling import NEVER, SettlingWorkload
from tidelog_chaos.workload.spark.copier import Copier, wait_copied
from tidelog_chaos.workload.spark.copy_query import CopyQuery
from tidelog_chaos.workload.transaction_states import describe_transactions
from tidelog_chaos.workload.workload import Workload
from tidelog_foundation.errors import TidelogError

_SOURCE = {"maxOffsetsPerTrigger": "500"}
_STARTS_S = 150.0
_COPIES_S = 300.0
"""Spark starts in ten seconds, but on a busy machine in two minutes."""
_LOOK_S = 0.25


class SparkWorkload(SettlingWorkload):
    """Producers, a query that copies, and readers of both sides."""

    ends_s = SettlingWorkload.ends_s + _COPIES_S

    def __init__(self, *arguments: Any, **more: Any) -> None:
        self._copiers: list[Copier] = []
        super().__init__(*arguments, **more)

    def _make_keys(self) -> Keys:
        inputs = max(1, self._settings.topics // 2)
        return _CopiedKeys(self._create, self._prefix, 2 * inputs, self._settings.partitions, NEVER)

    def _writer(self, number: int) -> Client:
        """Return a writer of transactions or, every second time, of single records."""
        return super()._writer(number) if number % 2 == 0 else Workload._writer(self, number)

    def _make_readers(self) -> Sequence[Client]:
        own = transactional_consumer(self._settings.consumer)
        return [Reader("reader", {**self._clients_servers, **own}, self._shared)]

    @property
    def topics(self) -> list[str]:
        """Every topic of the run, and that of the transactions' coordinators."""
        return [*super().topics, STATE_TOPIC]

    @property
    def targets(self) -> list[str]:
        """The partitions of inputs and outputs."""
        return self.keys.all

    @property
    def _clients(self) -> Sequence[Client]:
        return [*super()._clients, *self._copiers]

    def start(self) -> None:
        """Create the topics, start, and wait for the first batch, so that the faults hit a query that works."""
        self.keys.start()
        copies = _copies(self.keys.topics)
        of_keys = {
            key_of(taken, number): key_of(given, number)
            for taken, given in copies.items()
            for number in range(self._settings.partitions)
        }
        self._shared.history.note("copies", {"of": of_keys}, process=SPARK)
        query = CopyQuery(self._folder, self._servers, copies, _SOURCE)
        self._copiers.append(Copier(query, self._shared, self._dice.randrange(2**32)))
        self._start_clients()
        limit = Deadline(_STARTS_S)
        while not (self._copiers[0].copied or self.failed or limit.is_over):
            time.sleep(_LOOK_S)

    def stop_writing(self, deadline: Deadline) -> list[str]:
        """Stop all clients after the query has copied everything, and wait until every transaction has ended."""
        problems = super().stop_writing(deadline)
        try:
            problems += self._settle(deadline)
        except (TidelogError, TimeoutError) as error:
            problems.append(f"the end of the transactions cannot be known: {error}; {self._states()}")
        return problems

    def _victim(self) -> Client:
        """Let the query crash as often as all other clients."""
        return self._dice.choice((self._dice.choice(super()._clients), self._copiers[0]))

    def _drain(self, deadline: Deadline) -> list[str]:
        """Let the query copy every committed record."""
        limit = deadline.within(_COPIES_S)
        begin_s = time.monotonic()
        ends = self._input_ends(limit)
        behind = wait_copied(self._copiers[0], ends, begin_s + limit.limit_s)
        self._shared.history.note("copied", {"limit_s": round(limit.limit_s), "behind": behind}, process=SPARK)
        return self._end(self._copiers, deadline)

    def _input_ends(self, limit: Deadline) -> Mapping[str, int]:
        """Return the ends of the inputs when no transaction is open in them, or as they are at the limit."""
        inputs = self.keys.written
        while True:
            try:
                is_open = any(key in inputs for key in self._behind())
                if not is_open or limit.is_over:
                    stable = self._latest(IsolationLevel.READ_COMMITTED)
                    return {key: stable[key] for key in inputs}
            except (TidelogError, TimeoutError):
                if limit.is_over:
                    raise
            time.sleep(_LOOK_S)

    def _states(self) -> str:
        return describe_transactions(self._admin, (self._prefix, "tidelog-spark-"))


class _CopiedKeys(Keys):
    """All keys, of which the run's own producers write to the inputs."""

    @property
    def written(self) -> list[str]:
        """The keys of the inputs."""
        inputs = _copies(self.topics)
        return [key for key in self.all if partition_of(key)[0] in inputs]


def _copies(topics: Sequence[str]) -> dict[str, str]:
    inputs = len(topics) // 2
    return dict(zip(topics[:inputs], topics[inputs:], strict=True))
