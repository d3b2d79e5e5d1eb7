"""A cluster link from Apache Kafka to Tidelog: records by CPU while it catches up, and its lag under a steady load.

The CPU is that of the whole node, which fetches, checks and stores the records. The lag of a record is the time between
its arrival at a consumer of the source and at one of the mirror.
"""

from __future__ import annotations

import os
import threading
import time

from confluent_kafka import Consumer, Producer, TopicPartition

from benchmarks import process
from benchmarks.peers.client import SILENT, Sender
from benchmarks.peers.clusters import Clusters, create_topic
from benchmarks.peers.tidelog_cluster import TidelogCluster
from benchmarks.result import Bar, Result
from benchmarks.rounds import quantile
from tidelog import AdminClient

_PARTITIONS, _RECORD_BYTES = 12, 1_024
_RECORDS, _FEW_RECORDS = 1_000_000, 200_000
_JAVA_BATCH_BYTES = 16_384
"""The batch.size of Java's producer. librdkafka's default, 1 MB, would make fewer and larger batches."""
_RATE, _LOAD_S, _SHORT_LOAD_S = 10_000, 30.0, 8.0
_WARM_S = 2.0
_TICK_S = 0.01
_SAMPLED = 10
"""One of so many records is measured, so that the client's own work is no part of the lag."""
_LINK, _STORED, _PACED = "link", "link-stored", "link-paced"
_TIMEOUT_S = 300.0
_LOOK_S = 0.05


def links(clusters: Clusters) -> list[Result]:
    """Return the records per CPU second of a link that catches up, and the lag of one at 10 MB/s."""
    tidelog, kafka = clusters.peers
    assert isinstance(tidelog, TidelogCluster)
    quick = clusters.options.quick
    records = _FEW_RECORDS if quick else _RECORDS
    for topic in (_STORED, _PACED):
        create_topic(kafka, topic, _PARTITIONS, 1)
    clusters.options.say(f"producing {records} records to {kafka.name}")
    sender = Sender(kafka.bootstrap_servers, _STORED, batch_size=_JAVA_BATCH_BYTES)
    sender.send(bytes(os.urandom(_RECORD_BYTES)), records)
    with AdminClient({"bootstrap.servers": tidelog.native_servers}) as admin:
        admin.create_cluster_link(_LINK, {"bootstrap.servers": kafka.bootstrap_servers}).result(60)
        clusters.options.say("mirroring stored records")
        begun_s, begun_cpu = time.monotonic(), process.cpu_seconds(tidelog.broker_pid(1))
        admin.create_mirror_topics(_LINK, [_STORED], replication_factor=1)[_STORED].result(60)
        _wait_for(admin, records)
        seconds = time.monotonic() - begun_s
        cpu = process.cpu_seconds(tidelog.broker_pid(1)) - begun_cpu
        admin.create_mirror_topics(_LINK, [_PACED], replication_factor=1)[_PACED].result(60)
        clusters.options.say("mirroring 10 MB/s")
        lags = _lags(kafka.bootstrap_servers, tidelog.bootstrap_servers, _SHORT_LOAD_S if quick else _LOAD_S)
    name = "cluster link, 1 KiB records"
    return [
        Result(f"{name}: by CPU of the node", records / cpu, "records/CPU s"),
        Result(f"{name}: catch up", records / seconds, "records/s"),
        Result("cluster link, 10 MB/s: lag, median", quantile(lags, 0.5) * 1e3, "ms"),
        Result("cluster link, 10 MB/s: lag, p99", quantile(lags, 0.99) * 1e3, "ms", bar=Bar.on_value(at_most=100)),
    ]


def _wait_for(admin: AdminClient, records: int) -> None:
    deadline = time.monotonic() + _TIMEOUT_S
    while time.monotonic() < deadline:
        found = admin.describe_mirror_topics(_LINK).result(30)[_STORED].partitions
        if sum(partition.high_watermark for partition in found.values()) >= records:
            return
        time.sleep(_LOOK_S)
    raise RuntimeError(f"the link has not copied {records} records in {_TIMEOUT_S:g} s")


class _Arrivals(threading.Thread):
    """The times at which a consumer receives one of some records each, by partition and offset."""

    def __init__(self, servers: str) -> None:
        super().__init__(name=f"consumer of {servers}")
        self.times: dict[tuple[int, int], float] = {}
        self._stops = threading.Event()
        self._consumer = Consumer(
            {
                "bootstrap.servers": servers,
                "group.id": "links",
                "fetch.queue.backoff.ms": 1,
                "enable.auto.commit": False,
            },
            logger=SILENT,
        )
        self._consumer.assign([TopicPartition(_PACED, partition, 0) for partition in range(_PARTITIONS)])

    def run(self) -> None:
        """Consume until stopped."""
        while not self._stops.is_set():
            messages = self._consumer.consume(500, 0.02)
            now_s = time.monotonic()
            for message in messages:
                partition, offset = message.partition(), message.offset()
                if partition is not None and offset is not None and offset % _SAMPLED == 0:
                    self.times[partition, offset] = now_s
        self._consumer.close()

    def stop(self) -> None:
        """Stop and wait for the end."""
        self._stops.set()
        self.join()


def _lags(source: str, mirror: str, load_s: float) -> list[float]:
    """Return the lags in seconds of the records that were sent after a warm-up."""
    consumers = _Arrivals(source), _Arrivals(mirror)
    for consumer in consumers:
        consumer.start()
    producer, value = Producer({"bootstrap.servers": source}), bytes(os.urandom(_RECORD_BYTES))
    begun_s = time.monotonic()
    sent = 0
    while (elapsed_s := time.monotonic() - begun_s) < load_s + _WARM_S:
        while sent < elapsed_s * _RATE:
            producer.produce(_PACED, value, partition=sent % _PARTITIONS)
            sent += 1
        producer.poll(0)
        time.sleep(_TICK_S)
    producer.flush(60)
    of_source, of_mirror = (consumer.times for consumer in consumers)
    deadline = time.monotonic() + 60
    while len(of_mirror) < len(of_source) and time.monotonic() < deadline:
        time.sleep(_LOOK_S)
    for consumer in consumers:
        consumer.stop()
    if of_source.keys() != of_mirror.keys():
        raise RuntimeError(f"the mirror has {len(of_mirror)} of {len(of_source)} records")
    measured = [place for place, at_s in of_source.items() if at_s >= begun_s + _WARM_S]
    return [max(0.0, of_mirror[place] - of_source[place]) for place in measured]
