"""A local cluster with security: one argument, and every client connects with the settings that it gives."""

from __future__ import annotations

import stat
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import Producer as KafkaProducer

from tidelog import AdminClient, Consumer
from tidelog.admin import NewTopic
from tidelog.testing import LocalCluster
from tidelog.testing.cluster_folder import kept_ports
from tidelog.testing.security import ClusterSecurity
from tidelog_foundation.errors import ConfigError

DEADLINE_S = 30


@pytest.fixture(scope="module", params=["ssl", "sasl_ssl"])
def cluster(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalCluster]:
    with LocalCluster(1, 1, tmp_path_factory.mktemp("secured") / "data", security=request.param) as cluster:
        yield cluster


def test_clients_of_both_protocols_connect_with_the_settings_of_the_cluster(cluster: LocalCluster) -> None:
    with AdminClient(cluster.client_settings()) as admin:
        admin.create_topics([NewTopic("t", 1, 1)])["t"].result(DEADLINE_S)
    producer = KafkaProducer(cluster.kafka_client_settings())
    producer.produce("t", b"1")
    assert producer.flush(DEADLINE_S) == 0
    with Consumer({**cluster.client_settings(), "group.id": "g", "auto.offset.reset": "earliest"}) as consumer:
        consumer.subscribe(["t"])
        [message] = consumer.consume(1, DEADLINE_S)
        assert message.value() == b"1"


def test_only_the_owner_can_read_keys_and_settings(cluster: LocalCluster) -> None:
    folder = cluster.security.folder
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    readable = {path.name for path in folder.iterdir() if stat.S_IMODE(path.stat().st_mode) != 0o600}
    assert readable == {"ca.pem"}
    properties = [handle.properties_path for handle in (*cluster.nodes.values(), *cluster.controllers.values())]
    assert {stat.S_IMODE(path.stat().st_mode) for path in properties} == {0o600}


def test_folder_keeps_its_ports_and_its_authority(cluster: LocalCluster) -> None:
    ports = kept_ports(cluster.data_dir)
    assert ports["node", 1].port == cluster.nodes[1].port
    assert ports["node", 1].kafka_port == cluster.nodes[1].kafka_port
    before = (cluster.security.folder / "ca.pem").read_text()
    protocol = "sasl_ssl" if cluster.security.has_sasl else "ssl"
    assert ClusterSecurity(protocol, cluster.security.folder).client_settings() == cluster.security.client_settings()
    assert (cluster.security.folder / "ca.pem").read_text() == before


def test_folder_of_an_open_cluster_is_refused(tmp_path: Path) -> None:
    with LocalCluster(1, 0, tmp_path):
        pass
    with (
        pytest.raises(ConfigError, match="is of a cluster without the users of"),
        LocalCluster(1, 0, tmp_path, security="sasl_ssl"),
    ):
        pass


def test_security_that_does_not_exist_and_users_that_do_not_are_refused(cluster: LocalCluster, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match='invalid security "sasl" of a local cluster'):
        LocalCluster(security="sasl")
    with pytest.raises(ConfigError, match="there is no user mallory"):
        cluster.client_settings("mallory")
