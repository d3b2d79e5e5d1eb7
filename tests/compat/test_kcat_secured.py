"""kcat at a cluster with SASL_SSL: what it writes is read by another client and the other way round, in a group too.

Debian's kcat logs in with PLAIN: its librdkafka, 2.0.2, cannot use SCRAM with Kafka 4 and with us.
"""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from contextlib import closing
from typing import Any

import pytest
from acknowledged import wait_for
from compat.clients.all import client
from compat.clients.client import Member
from compat.clients.record import Record
from compat.cluster import Deployment
from compat.debian import kcat
from compat.test_sasl_clients import Secured, sasl_config

from tidelog.testing import LocalCluster

pytestmark = pytest.mark.compat
PARTITIONS, DEADLINE_S = 3, 60


@pytest.fixture(scope="module")
def secured(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Secured]:
    client("kcat")
    folder = tmp_path_factory.mktemp("kcat")
    with LocalCluster(controllers=1, nodes=2, config=sasl_config("SASL_SSL", folder)) as cluster:
        yield Secured(cluster, "SASL_SSL", str(folder / "ca.pem"))


@pytest.fixture(scope="module")
def deployment(secured: Secured) -> Iterator[Deployment]:
    servers = secured.cluster.kafka_bootstrap_servers
    with closing(Deployment(servers, None, secured.cluster.data_dir, None, secured.confluent())) as made:
        yield made


def login(deployment: Deployment) -> dict[str, Any]:
    return {key.replace(".", "_"): value for key, value in deployment.login.items() if key != "bootstrap.servers"}


@pytest.mark.parametrize(("writer", "reader"), [("kcat", "confluent-kafka"), ("confluent-kafka", "kcat")])
def test_records_are_carried_over_sasl_ssl(deployment: Deployment, name: str, writer: str, reader: str) -> None:
    topic = deployment.create(name, PARTITIONS, 2)
    records = [Record(b"%d" % n, b"key", partition=n % PARTITIONS) for n in range(60)]
    client(writer).produce(deployment.servers, topic, records, **login(deployment))
    read = client(reader).consume(deployment.servers, topic, len(records), PARTITIONS, **login(deployment))
    assert sorted(int(record.value or b"") for record in read) == list(range(60))


def test_kcat_joins_a_group_over_sasl_ssl(deployment: Deployment, name: str) -> None:
    topic = deployment.create(name, PARTITIONS, 2)
    settings = login(deployment)
    with Member(client("kcat"), deployment.servers, topic, name, **settings) as member:
        wait_for(lambda: member.assigned == set(range(PARTITIONS)), "all partitions assigned", DEADLINE_S)
        records = [Record(b"%d" % n, partition=n % PARTITIONS) for n in range(30)]
        client("confluent-kafka").produce(deployment.servers, topic, records, **settings)
        wait_for(lambda: len(member.read) == len(records), "all records to be read", DEADLINE_S)


@pytest.mark.parametrize(
    ("changed", "said", "logged"),
    [
        ({"sasl.password": "wrong"}, "Invalid username or password", "unknown user or wrong password"),
        ({"sasl.mechanism": "SCRAM-SHA-256"}, "invalid credentials with SASL mechanism SCRAM", "nonce is there twice"),
        ({"ssl.ca.location": "/etc/ssl/certs/ca-certificates.crt"}, "certificate verify failed", "unknown ca"),
        ({"security.protocol": "plaintext"}, "Disconnected", "the client does not speak TLS"),
    ],
)
def test_refused_kcat_says_why_and_so_does_the_log(
    secured: Secured, changed: dict[str, str], said: str, logged: str
) -> None:
    settings = {**secured.confluent(), **changed}
    options = [part for key, value in settings.items() for part in ("-X", f"{key}={value}")]
    command = [*kcat(), "-L", "-b", settings["bootstrap.servers"], "-m", "5", *options]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode != 0
    assert said in done.stderr
    wait_for(lambda: logged in secured.log, f"the log to say {logged!r}", DEADLINE_S)
