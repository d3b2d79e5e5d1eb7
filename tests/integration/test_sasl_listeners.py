"""A cluster whose gRPC listeners all require a login, of clients, nodes and controllers."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any

import pytest
from acknowledged import wait_for
from certificates import Authority

from tidelog import AdminClient, Consumer, KafkaException, Producer
from tidelog.admin import NewTopic, QuorumAdmin
from tidelog.testing import LocalCluster

DEADLINE_S = 30
PLAIN = "org.apache.kafka.common.security.plain.PlainLoginModule required"
SERVER = f'{PLAIN} username="server" password="s-secret" user_server="s-secret" user_alice="a-secret";'
ALICE = {"sasl.mechanisms": "PLAIN", "sasl.username": "alice", "sasl.password": "a-secret"}


@pytest.fixture(scope="module")
def secured(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalCluster]:
    folder, authority = tmp_path_factory.mktemp("stores"), Authority()
    config = {
        "listener.security.protocol.map": "GRPC:GRPC_SASL_SSL,GRPC_SASL_SSL:GRPC_SASL_SSL,PLAINTEXT:PLAINTEXT",
        "controller.listener.names": "GRPC_SASL_SSL",
        "inter.broker.listener.name": "GRPC",
        "sasl.enabled.mechanisms": "PLAIN",
        "sasl.mechanism.controller.protocol": "PLAIN",
        "sasl.mechanism.inter.broker.protocol": "PLAIN",
        "listener.name.grpc_sasl_ssl.plain.sasl.jaas.config": SERVER,
        "listener.name.grpc.plain.sasl.jaas.config": SERVER,
        # Short, so that every session of the test is prolonged several times.
        "connections.max.reauth.ms": "600",
        "ssl.keystore.type": "PEM",
        "ssl.keystore.location": str(authority.issue("node").write_pem(folder / "node.pem")),
        "ssl.truststore.type": "PEM",
        "ssl.truststore.location": str(authority.write_pem(folder / "ca.pem")),
        "min.insync.replicas": "2",
    }
    client = {"security.protocol": "SASL_SSL", "ssl.ca.location": str(folder / "ca.pem"), **ALICE}
    with LocalCluster(controllers=3, nodes=2, config=config, client_config=client) as cluster:
        cluster.client = client  # type: ignore[attr-defined]
        yield cluster


def settings_of(cluster: LocalCluster, **own: Any) -> dict[str, Any]:
    given = {"bootstrap.servers": cluster.bootstrap_servers, **cluster.client}  # type: ignore[attr-defined]
    return given | {key.replace("_", "."): value for key, value in own.items()}


def test_load_over_prolonged_sessions_loses_nothing_and_elects_no_other_leader(secured: LocalCluster) -> None:
    with QuorumAdmin(settings_of(secured)) as quorum:
        before = quorum.describe_metadata_quorum()
    with AdminClient(settings_of(secured)) as admin:
        admin.create_topics([NewTopic("t", 2, 2)])["t"].result(DEADLINE_S)
    errors: list[object] = []
    count, ends_s = 0, time.monotonic() + 1.5
    with Producer(settings_of(secured, acks="all", linger_ms=1)) as producer:
        while time.monotonic() < ends_s:
            producer.produce("t", b"%d" % count, on_delivery=lambda error, _: error and errors.append(error))
            producer.poll(0.005)
            count += 1
        assert producer.flush(DEADLINE_S) == 0
    assert errors == []
    found: set[bytes] = set()
    with Consumer(settings_of(secured, group_id="g", auto_offset_reset="earliest")) as consumer:
        consumer.subscribe(["t"])

        def is_read() -> bool:
            values = [message.value() for message in consumer.consume(500, 0.5)]
            assert found.isdisjoint(values), "nothing is stored twice"
            found.update(values)
            return len(found) == count

        wait_for(is_read, "all records to be read", DEADLINE_S)
    with QuorumAdmin(settings_of(secured)) as quorum:
        assert quorum.describe_metadata_quorum().leader_epoch == before.leader_epoch


def test_client_with_a_wrong_password_is_refused_by_nodes_and_controllers(secured: LocalCluster) -> None:
    wrong = settings_of(secured, sasl_password="wrong")
    with AdminClient(wrong) as admin, pytest.raises(KafkaException, match="_AUTHENTICATION"):
        admin.list_topics(timeout=DEADLINE_S)
    controllers = ",".join(each.address for each in secured.controllers.values())
    own = {key: value for key, value in wrong.items() if key != "bootstrap.servers"}
    refused = pytest.raises(KafkaException, match="Invalid username or password")
    with QuorumAdmin({**own, "bootstrap.controllers": controllers}) as quorum, refused:
        quorum.describe_metadata_quorum()


def test_restarted_processes_are_logged_in_again(secured: LocalCluster) -> None:
    leader = secured.controller_leader()
    assert leader is not None
    with Producer(settings_of(secured, acks="all")) as producer:
        producer.produce("t", b"before")
        assert producer.flush(DEADLINE_S) == 0
        secured.controllers[leader].kill()
        wait_for(lambda: secured.controller_leader() not in (None, leader), "another leader", DEADLINE_S)
        secured.controllers[leader].start()
        secured.nodes[1].kill()
        secured.nodes[1].start()
        secured.wait_ready()
        producer.produce("t", b"after")
        assert producer.flush(DEADLINE_S) == 0
