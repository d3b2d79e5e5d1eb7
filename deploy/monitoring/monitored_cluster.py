"""A cluster under a load and faults that every panel of the dashboards shows, and the Prometheus that scrapes it.

``render_dashboards.py`` draws what Prometheus answers, and the tests check that every panel has data. The cluster has
TLS, logins and an authorizer. Its load are producers, transactions, groups of which one lags, clients over both
protocols, and clients whom the cluster refuses or delays. A node is killed and a controller stopped; both return.
"""

from __future__ import annotations

import contextlib
import json
import logging
import re
import socket
import subprocess
import threading
import time
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import confluent_kafka
import yaml

from tidelog import AdminClient, Consumer, KafkaException, Producer
from tidelog.admin import (
    ClientQuotaAlteration,
    ClientQuotaAlterationOp,
    ClientQuotaEntity,
    NewTopic,
    ScramCredentialInfo,
    ScramMechanism,
    UserScramCredentialUpsertion,
)
from tidelog.testing import LocalCluster

logger = logging.getLogger(__name__)

CLUSTER: Final = "flights"
SCRAPE_S: Final = 2
RATE_INTERVAL: Final = f"{4 * SCRAPE_S}s"
"""Grafana's ``$__rate_interval`` for this interval of scrapes."""
ALERTS: Final = Path(__file__).resolve().parent / "alerts.yaml"
_REFUSED_ADDRESS: Final = "127.0.0.2"
_SETTINGS: Final = {
    # The cluster shares a machine with its load: a process that waits for a processor is not to lose its leadership.
    "controller.quorum.election.timeout.ms": 5_000,
    "broker.session.timeout.ms": 12_000,
    "replica.lag.time.max.ms": 10_000,
    "log.cleaner.backoff.ms": 1_000,
    "max.connections.per.ip.overrides": f"{_REFUSED_ADDRESS}:0",
}
_TOPICS: Final = (
    NewTopic("orders", 6, 3, config={"min.insync.replicas": "2", "flush.messages": "500"}),
    NewTopic("clicks", 3, 2),
    NewTopic(
        "balances",
        2,
        3,
        config={"cleanup.policy": "compact", "min.cleanable.dirty.ratio": "0.01", "segment.bytes": "1048576"},
    ),
)
_VALUE: Final = b"x" * 500
_GREEDY_BYTES: Final = 20_000.0
_WAIT_S: Final = 60.0
_START_S: Final = 180.0
"""The longest start of the cluster, on a busy machine."""


@dataclass(frozen=True, slots=True)
class Prometheus:
    """A running Prometheus at ``host:port``."""

    address: str

    def query(self, expression: str) -> list[dict[str, Any]]:
        """Return the present values, none if Prometheus does not answer yet."""
        try:
            return self._ask("query", query=expression)
        except urllib.error.URLError:
            return []

    def query_range(self, expression: str, start_s: float, end_s: float) -> list[dict[str, Any]]:
        """Return the series of an expression between two times, one value per scrape.

        Raises:
            OSError: Prometheus refuses the expression, or does not answer.
        """
        return self._ask("query_range", query=expression, start=f"{start_s}", end=f"{end_s}", step=f"{SCRAPE_S}")

    def _ask(self, path: str, **parameters: str) -> list[dict[str, Any]]:
        url = f"http://{self.address}/api/v1/{path}?{urllib.parse.urlencode(parameters)}"
        with urllib.request.urlopen(url, timeout=_WAIT_S) as answer:
            results: list[dict[str, Any]] = json.load(answer)["data"]["result"]
        return results


@contextlib.contextmanager
def scraped(
    cluster: LocalCluster, folder: Path, *, scrape_s: int = SCRAPE_S, rules: str | None = None
) -> Iterator[Prometheus]:
    """Run a Prometheus over the processes of a cluster. Its alerts are ``rules``, or the project's without delays.

    Nodes and controllers are instances by their names: ``node-1``, ``controller-1``. Prometheus also scrapes what
    appears in ``folder/more-*.json``, in its format for the discovery of targets.
    """
    (folder / "alerts.yaml").write_text(rules or without_delays(ALERTS.read_text()))
    jobs = {"controller": cluster.controllers, "node": cluster.nodes}
    configuration = {
        "global": {"scrape_interval": f"{scrape_s}s", "evaluation_interval": f"{scrape_s}s"},
        "rule_files": ["alerts.yaml"],
        "scrape_configs": [
            {
                "job_name": f"tidelog-{kind}s",
                "static_configs": [
                    {
                        "targets": [process.metrics_address],
                        "labels": {"cluster": CLUSTER, "instance": f"{kind}-{number}"},
                    }
                    for number, process in processes.items()
                ],
                "file_sd_configs": [{"files": [f"more-{kind}s-*.json"]}],
            }
            for kind, processes in jobs.items()
        ],
    }
    (folder / "prometheus.yaml").write_text(yaml.safe_dump(configuration))
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{unused.getsockname()[1]}"
    options = ("--config.file=prometheus.yaml", "--storage.tsdb.path=data", f"--web.listen-address={address}")
    with (
        (folder / "log").open("w") as log,
        subprocess.Popen(["prometheus", *options], cwd=folder, stderr=log) as process,
    ):
        try:
            yield Prometheus(address)
        finally:
            process.terminate()


def without_delays(rules: str) -> str:
    """Return alert rules whose alerts fire a second after their expression is true."""
    return re.sub(r"for: \w+", "for: 1s", rules)


@contextlib.contextmanager
def busy_cluster() -> Iterator[LocalCluster]:
    """Run three controllers and three nodes under the load."""
    with contextlib.closing(LocalCluster(3, 3, config=_SETTINGS, security="sasl_ssl", metrics=True)) as cluster:
        cluster.start()
        cluster.wait_ready(_START_S)
        _prepare(cluster)
        ended = threading.Event()
        threads = [threading.Thread(target=_repeat, args=(work, cluster, ended), name=work.__name__) for work in _LOADS]
        for thread in threads:
            thread.start()
        try:
            yield cluster
        finally:
            ended.set()
            for thread in threads:
                thread.join()


def inject_faults(cluster: LocalCluster, pause_s: float) -> None:
    """Kill a node and stop the leading controller, and start each again after ``pause_s`` seconds."""
    cluster.nodes[3].kill()
    time.sleep(pause_s)
    cluster.nodes[3].start()
    cluster.wait_ready(_START_S)
    leader = cluster.controller_leader()
    assert leader is not None
    cluster.controllers[leader].stop()
    time.sleep(pause_s)
    cluster.controllers[leader].start()
    cluster.wait_ready(_START_S)


def _prepare(cluster: LocalCluster) -> None:
    with AdminClient(cluster.client_settings()) as admin:
        for created in admin.create_topics(list(_TOPICS)).values():
            created.result(_WAIT_S)
        visitor = ScramCredentialInfo(ScramMechanism.SCRAM_SHA_512, 4096)
        upsertion = UserScramCredentialUpsertion("visitor", visitor, b"visitor-secret")
        for stored in admin.alter_user_scram_credentials([upsertion]).values():
            stored.result(_WAIT_S)
        quota = ClientQuotaAlteration(
            ClientQuotaEntity({"client-id": "greedy"}), [ClientQuotaAlterationOp("producer_byte_rate", _GREEDY_BYTES)]
        )
        for altered in admin.alter_client_quotas([quota]).values():
            altered.result(_WAIT_S)


def _repeat(
    work: Callable[[LocalCluster, threading.Event], None], cluster: LocalCluster, ended: threading.Event
) -> None:
    """Repeat a load until the end; faults of the cluster may end one round."""
    while not ended.is_set():
        try:
            work(cluster, ended)
        except (KafkaException, confluent_kafka.KafkaException, OSError) as error:
            logger.info("%s: %s", work.__name__, error)
            ended.wait(1.0)


def _produce(cluster: LocalCluster, ended: threading.Event) -> None:
    with Producer({**cluster.client_settings(), "client.id": "booking", "linger.ms": 5}) as producer:
        while not ended.wait(0.02):
            for number in range(5):
                producer.produce("orders", _VALUE, key=str(number))
            producer.produce("clicks", _VALUE)
            producer.poll(0)


def _produce_over_kafka(cluster: LocalCluster, ended: threading.Event) -> None:
    producer = confluent_kafka.Producer({**cluster.kafka_client_settings(), "client.id": "booking-kafka"})
    while not ended.wait(0.05):
        producer.produce("orders", _VALUE)
        producer.poll(0)
    producer.flush(5)


def _transact(cluster: LocalCluster, ended: threading.Event) -> None:
    with Producer({**cluster.client_settings(), "transactional.id": "accounts"}) as producer:
        producer.init_transactions(_WAIT_S)
        while not ended.wait(0.1):
            producer.begin_transaction()
            for number in range(50):
                producer.produce("balances", _VALUE * 2, key=str(number))
            producer.commit_transaction(_WAIT_S)


def _consume(cluster: LocalCluster, ended: threading.Event) -> None:
    settings = {**cluster.client_settings(), "group.id": "billing", "auto.commit.interval.ms": 1_000}
    with Consumer({**settings, "auto.offset.reset": "earliest", "group.protocol": "consumer"}) as consumer:
        consumer.subscribe(["orders", "balances"])
        while not ended.is_set():
            consumer.consume(500, 0.2)


def _consume_slowly_over_kafka(cluster: LocalCluster, ended: threading.Event) -> None:
    settings = {**cluster.kafka_client_settings(), "group.id": "reports", "auto.commit.interval.ms": 1_000}
    consumer = confluent_kafka.Consumer({**settings, "auto.offset.reset": "earliest"})
    try:
        consumer.subscribe(["orders", "clicks"])
        while not ended.wait(0.2):
            consumer.consume(10, 0.1)
    finally:
        consumer.close()


def _exceed_the_quota(cluster: LocalCluster, ended: threading.Event) -> None:
    with Producer({**cluster.client_settings(), "client.id": "greedy"}) as producer:
        while not ended.wait(0.1):
            for _ in range(10):
                producer.produce("clicks", _VALUE)
            producer.poll(0)
        producer.purge()


def _fail_to_log_in(cluster: LocalCluster, ended: threading.Event) -> None:
    settings = {**cluster.client_settings(), "sasl.password": "wrong"}
    while not ended.wait(1.0):
        with AdminClient(settings) as stranger, contextlib.suppress(KafkaException):
            stranger.cluster_id(5)


def _ask_without_rights(cluster: LocalCluster, ended: threading.Event) -> None:
    settings = {**cluster.client_settings(), "sasl.username": "visitor", "sasl.password": "visitor-secret"}
    with AdminClient(settings) as visitor:
        while not ended.wait(0.5):
            refused = (
                visitor.create_topics([NewTopic("mine", 1, 1)])["mine"],
                visitor.delete_topics(["orders"])["orders"],
                visitor.describe_cluster(),
            )
            for future in refused:
                with contextlib.suppress(KafkaException):
                    future.result(_WAIT_S)


def _connect_too_often(cluster: LocalCluster, ended: threading.Event) -> None:
    host, port = cluster.kafka_bootstrap_servers.split(",")[0].rsplit(":", 1)
    while not ended.wait(0.5):
        with contextlib.suppress(OSError), socket.create_connection((host, int(port)), 5, (_REFUSED_ADDRESS, 0)) as one:
            one.recv(1)


_LOADS: Final = (
    _produce,
    _produce_over_kafka,
    _transact,
    _consume,
    _consume_slowly_over_kafka,
    _exceed_the_quota,
    _fail_to_log_in,
    _ask_without_rights,
    _connect_too_often,
)


def expression_of(template: str) -> str:
    """Return a panel's expression for this cluster, with everything for the dashboard's other variables."""
    values = {"cluster": CLUSTER, "__rate_interval": RATE_INTERVAL}
    return re.sub(r"\$(\w+)", lambda found: values.get(found[1], ".+"), template)
