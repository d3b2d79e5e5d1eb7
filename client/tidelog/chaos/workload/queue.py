"""The queue workload: unique values are sent to partitions and read back, by clients that crash now and then.

The end is that of Jepsen's test: when all faults are healed and all replicas in sync, every process crashes and comes
back, assigns everything, seeks to the beginning and polls to the end.
"""

from __future__ import annotations

import functools
import itertools
import random
import threading
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any

from tidelog.admin import AdminClient
from tidelog.chaos.history import HistoryWriter
from tidelog.chaos.metrics import Meter
from tidelog.chaos.workload.keys import Keys, create_topics, partition_of
from tidelog.chaos.workload.reader import Reader
from tidelog.chaos.workload.writer import Writer
from tidelog.cluster.config import refuse_missing
from tidelog.config import parse_config
from tidelog.consumer import Consumer
from tidelog.consumer import config as consumer_settings
from tidelog.message import TopicPartition
from tidelog.producer import config as producer_settings

_END_TIMEOUT_S = 60.0
_PRODUCER = {"acks": "all", "linger.ms": 1, "message.timeout.ms": 10_000, "request.timeout.ms": 5_000}


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkloadSettings:
    """How much is sent, by how many clients, to where.

    ``producer``, ``consumer`` and ``topic`` are settings that go before the run's own, with their dotted names.
    """

    rate_per_s: float = 200
    topics: int = 2
    partitions: int = 3
    replication_factor: int = 3
    writes_per_key: int = 1_000
    producers: int = 2
    processes_per_producer: int = 8
    consumers: int = 2
    crash_interval_s: float = 30
    producer: Mapping[str, Any] = field(default_factory=dict)
    consumer: Mapping[str, Any] = field(default_factory=dict)
    topic: Mapping[str, str] = field(default_factory=dict)


class QueueWorkload:
    """All clients of a run: :meth:`start`, :meth:`stop_writing`, :meth:`finish`, in this order."""

    def __init__(
        self,
        settings: WorkloadSettings,
        bootstrap_servers: str,
        admin: AdminClient,
        prefix: str,
        history: HistoryWriter,
        meter: Meter,
        seed: int,
    ) -> None:
        self._settings = settings
        self._dice = random.Random(seed)
        self._servers = {"bootstrap.servers": bootstrap_servers}
        topic = {"min.insync.replicas": str(min(2, settings.replication_factor)), **settings.topic}
        create = functools.partial(
            create_topics,
            admin,
            partitions=settings.partitions,
            factor=settings.replication_factor,
            config=topic,
        )
        self.keys = Keys(create, prefix, settings.topics, settings.partitions, settings.writes_per_key)
        serial = itertools.count()
        new_process = functools.partial(next, serial)
        self._writers = [
            Writer(
                f"writer {number}",
                {**self._servers, **producer_config(settings.producer)},
                self.keys,
                history,
                meter,
                new_process,
                settings.processes_per_producer,
                settings.rate_per_s / settings.producers,
                self._dice.randrange(2**32),
            )
            for number in range(settings.producers)
        ]
        self._readers = [
            Reader(f"reader {n}", {**self._servers, **settings.consumer}, self.keys, history, meter, new_process)
            for n in range(settings.consumers)
        ]
        self._clients: Sequence[Writer | Reader] = [*self._writers, *self._readers]
        self._stopping = threading.Event()
        self._crashes = threading.Thread(target=self._crash_now_and_then, name="crashes", daemon=True)

    @property
    def errors(self) -> dict[str, int]:
        """How often clients were told of each error."""
        total: dict[str, int] = {}
        for client in self._clients:
            for name, count in client.errors.items():
                total[name] = total.get(name, 0) + count
        return dict(sorted(total.items()))

    @property
    def failed(self) -> BaseException | None:
        """Why a client ended that should not have, or None."""
        return next((client.error for client in self._clients if client.error), None)

    def start(self) -> None:
        """Create the first topics and begin."""
        self.keys.start()
        for client in self._clients:
            client.start()
        self._crashes.start()

    def stop_writing(self) -> None:
        """Wait for what was sent; then every process crashes."""
        self._stopping.set()
        if self._crashes.ident is not None:
            self._crashes.join()
        self.keys.stop()
        for client in self._clients:
            client.stop()

    def give_up(self) -> None:
        """End everything without waiting for it, as after an error."""
        self._stopping.set()
        self.keys.stop()
        for client in self._clients:
            client.give_up()

    def finish(self) -> tuple[dict[str, int], list[str]]:
        """Let every reader read everything; returns each key's end, and the keys whose end was not reached.

        Raises:
            TidelogError: The cluster does not say where the partitions end.
        """
        ends = self._ends()
        with ThreadPoolExecutor(len(self._readers) or 1, "final reader") as pool:
            behind = list(pool.map(lambda reader: reader.read_everything(ends), self._readers))
        return ends, sorted({key for keys in behind for key in keys})

    def _ends(self) -> dict[str, int]:
        with Consumer(self._servers) as consumer:
            return {
                key: consumer.get_watermark_offsets(TopicPartition(*partition_of(key)), timeout=_END_TIMEOUT_S)[1]
                for key in self.keys.all
            }

    def _crash_now_and_then(self) -> None:
        mean_s = self._settings.crash_interval_s
        while mean_s and not self._stopping.wait(self._dice.uniform(0.5, 1.5) * mean_s):
            self._dice.choice(self._clients).crash()


def producer_config(own: Mapping[str, Any]) -> dict[str, Any]:
    """Return the settings of a producer: acknowledged by all and idempotent, unless its ``own`` say otherwise."""
    is_idempotent = own.get("acks") in (None, "all", "-1", -1)
    return {**_PRODUCER, "enable.idempotence": is_idempotent, **own}


def check_clients(settings: WorkloadSettings) -> None:
    """Raise ConfigError for a setting that producers or consumers do not take."""
    somewhere = {"bootstrap.servers": "localhost:9094"}
    producer, consumer = producer_config(settings.producer), settings.consumer
    refuse_missing(producer, producer_settings.MISSING)
    refuse_missing(consumer, consumer_settings.MISSING)
    parsed = parse_config(producer_settings.ProducerConfig, {**somewhere, **producer})
    parsed.resolve_idempotence("enable.idempotence" in producer)
    parse_config(consumer_settings.ConsumerConfig, {**somewhere, **consumer})
