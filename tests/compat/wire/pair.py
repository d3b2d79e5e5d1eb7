"""Apache Kafka and Tidelog side by side: a controller and a broker each, with the same settings."""

from __future__ import annotations

import contextlib
import os
import shutil
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path

from compat.jars import Unavailable, kafka_libs
from compat.wire.side import Side

from benchmarks.peers.apache_kafka import ApacheKafka
from benchmarks.peers.maven import Installation, version_of
from benchmarks.peers.peer import Size
from tidelog.testing import LocalCluster

SETTINGS = {
    "num.partitions": 2,
    "group.initial.rebalance.delay.ms": 0,
    "group.min.session.timeout.ms": 1_000,
    "offsets.topic.num.partitions": 3,
    "transaction.state.log.num.partitions": 3,
    "transaction.abort.timed.out.transaction.cleanup.interval.ms": 500,
    "transaction.two.phase.commit.enable": True,
}
_KAFKA_SETTINGS = {"unstable.api.versions.enable": True}
"""Kafka 4.1 serves InitProducerId in version 6 (KIP-939) only with it."""
_QUICK = ("-XX:TieredStopAtLevel=1",)
"""The first of the JVM's two compilers alone: it runs for seconds."""
_VERSION = "4.1"
"""The Kafka that the list of known differences is of."""


@contextlib.contextmanager
def addresses(kafka_changes: Mapping[str, object], tidelog_changes: Mapping[str, object]) -> Iterator[tuple[str, str]]:
    """Start both with settings of their own; yields the address of Kafka's listener, and of ours.

    Raises Unavailable where there is no Java, or not this Kafka.
    """
    installation = _installation()
    with contextlib.ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="tidelog-kafka-")))
        kafka = ApacheKafka(installation, Size(1, 1), folder, {**SETTINGS, **kafka_changes}, _QUICK)
        stack.callback(kafka.close)
        kafka.prepare()
        kafka.start()
        config = {**SETTINGS, **tidelog_changes}
        cluster = stack.enter_context(LocalCluster(controllers=1, nodes=1, config=config))
        try:
            yield kafka.bootstrap_servers, cluster.kafka_bootstrap_servers
        except AssertionError:
            print(kafka.last_words())
            raise


@contextlib.contextmanager
def pair(changes: Mapping[str, object] | None = None) -> Iterator[tuple[Side, Side]]:
    """Start both; yields Kafka's side and ours. Raises Unavailable where there is no Java, or not this Kafka.

    ``changes`` are settings of both.
    """
    settings = dict(changes or {})
    with contextlib.ExitStack() as stack:
        kafka, tidelog = stack.enter_context(addresses(settings | _KAFKA_SETTINGS, settings))
        sides = (Side("kafka", kafka), Side("tidelog", tidelog))
        for side in sides:
            stack.enter_context(side)
            side.wait_until_ready()
        yield sides


def _installation() -> Installation:
    if not os.environ.get("JAVA_HOME") and shutil.which("java") is None:
        raise Unavailable("there is no java on the PATH, nor a JAVA_HOME")
    libs = kafka_libs()
    try:
        version = version_of([path.name for path in libs.glob("*.jar")], libs)
    except FileNotFoundError as error:
        raise Unavailable(str(error)) from error
    if not version.startswith(f"{_VERSION}."):
        raise Unavailable(f"{libs} has Kafka {version}; what differs is known of {_VERSION}")
    return Installation(version, libs)
