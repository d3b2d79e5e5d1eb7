"""The base of the workloads, and the workload queue.

Clients that crash now and then send unique values to partitions and read them back.

A run ends like Jepsen's tests: when all faults are healed and all replicas in sync, every process crashes and
returns, assigns everything, seeks to the beginning and polls to the end.
"""

from __future__ import annotations

import functools
import itertools
import random
import threading
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import ClassVar

from tidelog.admin import AdminClient
from tidelog.consumer import Consumer
from tidelog.message import TopicPartition
from tidelog_chaos.background import BackgroundThread, StillRunningError
from tidelog_chaos.deadline import Deadline
from tidelog_chaos.history import HistoryWriter
from tidelog_chaos.metrics import Meter
from tidelog_chaos.workload.client import Client, Shared
from tidelog_chaos.workload.keys import Keys, create_topics, partition_of
from tidelog_chaos.workload.library import Library
from tidelog_chaos.workload.reader import FinalRead, Reader
from tidelog_chaos.workload.settings import WorkloadSettings, producer_config
from tidelog_chaos.workload.writer import Writer

_END_TIMEOUT_S = 60.0
_CLIENTS_END_S = 75.0
"""When no fault is active, the operations of a client end in less, and a call that never ends is given up in less."""


class Workload(ABC):
    """All clients of a run: :meth:`start`, :meth:`stop_writing`, :meth:`finish`, in this order."""

    ends_s: ClassVar[float] = 180.0
    """The limit of everything between the faults and the final reads; each wait in between has one of its own."""

    def __init__(
        self,
        settings: WorkloadSettings,
        library: Library,
        clients_servers: Mapping[str, str],
        servers: Mapping[str, str],
        admin: AdminClient,
        prefix: str,
        history: HistoryWriter,
        meter: Meter,
        seed: int,
        folder: Path,
    ) -> None:
        """``folder`` is for files of the clients; its contents end with the cluster's data."""
        self._settings = settings
        self._admin = admin
        self._prefix = prefix
        self._dice = random.Random(seed)
        self._clients_servers = clients_servers
        self._servers = servers
        self._folder = folder
        topic = {"min.insync.replicas": str(min(2, settings.replication_factor)), **settings.topic}
        self._create = functools.partial(
            create_topics, admin, partitions=settings.partitions, factor=settings.replication_factor, config=topic
        )
        self.keys = self._make_keys()
        new_process = functools.partial(next, itertools.count())
        self._shared = Shared(library, self.keys, history, meter, new_process)
        self._writers = [self._writer(number) for number in range(settings.producers)]
        self._readers: Sequence[Client] = self._make_readers()
        self._stopping = threading.Event()
        self._crashes = threading.Thread(target=self._crash_now_and_then, name="crashes", daemon=True)

    @property
    def topics(self) -> list[str]:
        """Every topic that the workload needs."""
        return self.keys.topics

    @property
    def targets(self) -> list[str]:
        """The partitions that faults are meant for."""
        return self.keys.written

    @property
    def errors(self) -> dict[str, int]:
        """The number of reports of each error to clients."""
        total: dict[str, int] = {}
        for client in self._clients:
            for name, count in client.errors.items():
                total[name] = total.get(name, 0) + count
        return dict(sorted(total.items()))

    @property
    def failed(self) -> BaseException | None:
        """The error of a client that ended unexpectedly, or None."""
        return next((client.error for client in self._clients if client.error), None)

    def start(self) -> None:
        """Create the first topics and start."""
        self.keys.start()
        self._start_clients()

    def stop_writing(self, deadline: Deadline) -> list[str]:
        """Wait for pending sends, and until the readers have read them as far as promised; then every process crashes.

        Return a sentence for each promise that was not kept, and each thread that did not end, in time.
        """
        self._stopping.set()
        if self._crashes.ident is not None:
            self._crashes.join(deadline.left_s)
        problems = self._end([self.keys, *self._writers], deadline)
        problems += self._drain(deadline)
        problems += self._end(self._readers, deadline)
        return problems

    def give_up(self) -> None:
        """Stop everything without waiting, as after an error."""
        self._stopping.set()
        self.keys.request_stop()
        for client in self._clients:
            client.give_up()

    def finish(self) -> tuple[dict[str, int], list[str]]:
        """Let every reader read everything; return each key's end, and the keys whose end was not reached.

        Raises:
            TidelogError: The cluster does not return the ends of the partitions.
        """
        ends = self._ends()
        reads = [FinalRead(reader, ends) for reader in self._final_readers()]
        for read in reads:
            read.start()
        return ends, sorted({key for read in reads for key in read.finish()})

    @abstractmethod
    def _make_readers(self) -> Sequence[Client]:
        """Return the clients that read while faults are active."""

    @abstractmethod
    def _final_readers(self) -> Sequence[Reader]:
        """Return the clients that read everything at the end."""

    def _make_keys(self) -> Keys:
        """Return the keys of the run."""
        settings = self._settings
        return Keys(self._create, self._prefix, settings.topics, settings.partitions, settings.writes_per_key)

    def _start_clients(self) -> None:
        for client in self._clients:
            client.start()
        self._crashes.start()

    def _drain(self, deadline: Deadline) -> list[str]:
        return []

    @staticmethod
    def _end(threads: Sequence[BackgroundThread], deadline: Deadline) -> list[str]:
        """Stop threads; return a sentence for each that has not ended in time, whose client is given up."""
        limit = deadline.within(_CLIENTS_END_S)
        for thread in threads:
            thread.request_stop()
        problems = []
        for thread in threads:
            try:
                thread.stop(limit.left_s)
            except StillRunningError as error:
                problems.append(f"after {limit.limit_s:.0f} s, {error}")
                if isinstance(thread, Client):
                    thread.give_up()
        return problems

    @property
    def _clients(self) -> Sequence[Client]:
        return [*self._writers, *self._readers]

    def _writer(self, number: int) -> Client:
        settings = self._settings
        return Writer(
            f"writer {number}",
            {**self._clients_servers, **producer_config(settings.producer, self._shared.library)},
            self._shared,
            settings.processes_per_producer,
            settings.rate_per_s / settings.producers,
            self._dice.randrange(2**32),
        )

    def _ends(self) -> dict[str, int]:
        deadline = Deadline(_END_TIMEOUT_S)
        with Consumer({**self._servers, "isolation.level": "read_uncommitted"}) as consumer:
            return {
                key: consumer.get_watermark_offsets(TopicPartition(*partition_of(key)), timeout=deadline.left_s)[1]
                for key in self.keys.all
            }

    def _crash_now_and_then(self) -> None:
        mean_s = self._settings.crash_interval_s
        while mean_s and not self._stopping.wait(self._dice.uniform(0.5, 1.5) * mean_s):
            self._victim().crash()

    def _victim(self) -> Client:
        """Return the client that crashes next."""
        return self._dice.choice(self._clients)


_CONSUMERS = 2


class QueueWorkload(Workload):
    """Consumers assign the partitions that are written to; each reads all of them, and everything at the end."""

    def _make_readers(self) -> Sequence[Reader]:
        consumers = self._settings.consumers or _CONSUMERS
        config = {**self._clients_servers, **self._settings.consumer}
        self._assigning = [Reader(f"reader {n}", config, self._shared) for n in range(consumers)]
        return self._assigning

    def _final_readers(self) -> Sequence[Reader]:
        return self._assigning
