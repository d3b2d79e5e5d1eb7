"""Running controllers move from an open listener to one with TLS and logins, while clients produce."""

from __future__ import annotations

import socket
from collections.abc import Callable
from pathlib import Path

import javaproperties
import pytest
from acknowledged import wait_for
from certificates import Authority
from compat.test_moved_listeners import DEADLINE_S, free_port, load

from tidelog import AdminClient, Consumer, KafkaException
from tidelog.admin import NewTopic, QuorumAdmin, QuorumInfo
from tidelog.testing import LocalCluster
from tidelog.testing.process import ProcessHandle

pytestmark = pytest.mark.compat
MODULE = "org.apache.kafka.common.security.plain.PlainLoginModule required"
USERS = 'user_node="n-secret" user_controller="c-secret" user_admin="a-secret";'


class Move:
    """The steps of the move: each step's settings, and a restart of one process at a time with them."""

    def __init__(self, cluster: LocalCluster, folder: Path) -> None:
        self.cluster = cluster
        self.leaders: dict[int, int] = {}
        self.opened = {i: controller.address for i, controller in cluster.controllers.items()}
        self.secured = {i: f"127.0.0.1:{free_port()}" for i in cluster.controllers}
        authority = Authority()
        self.tls = {
            "listener.security.protocol.map": "GRPC:GRPC,PLAINTEXT:PLAINTEXT,SECURED:GRPC_SASL_SSL",
            "listener.name.secured.ssl.keystore.type": "PEM",
            "listener.name.secured.ssl.keystore.location": str(authority.issue("server").write_pem(folder / "s.pem")),
            "listener.name.secured.ssl.truststore.type": "PEM",
            "listener.name.secured.ssl.truststore.location": str(authority.write_pem(folder / "ca.pem")),
            "listener.name.secured.sasl.enabled.mechanisms": "PLAIN",
            "sasl.mechanism.controller.protocol": "PLAIN",
        }
        self.admin = {
            "security.protocol": "SASL_SSL",
            "ssl.ca.location": str(folder / "ca.pem"),
            "sasl.mechanisms": "PLAIN",
            "sasl.username": "admin",
            "sasl.password": "a-secret",
        }

    def login(self, user: str) -> dict[str, str]:
        own = f'{MODULE} username="{user}" password="{user[0]}-secret" {USERS}'
        return {**self.tls, "listener.name.secured.plain.sasl.jaas.config": own}

    def voters(self, addresses: dict[int, str]) -> str:
        return ",".join(f"{i}@{address}" for i, address in addresses.items())

    def restart(self, handle: ProcessHandle, settings: dict[str, str], is_ready: Callable[[], bool]) -> None:
        with open(handle.properties_path, encoding="utf-8") as file:
            before = javaproperties.load(file)
        assert handle.stop() == 0
        handle.configure(before | settings)
        handle.start()
        wait_for(is_ready, f"{handle.name} to be back", DEADLINE_S)

    def quorum(self, addresses: dict[int, str], settings: dict[str, str]) -> QuorumInfo | None:
        try:
            with QuorumAdmin({"bootstrap.controllers": ",".join(addresses.values()), **settings}) as admin:
                quorum = admin.describe_metadata_quorum(request_timeout=5)
        except KafkaException:
            return None
        assert self.leaders.setdefault(quorum.leader_epoch, quorum.leader_id) == quorum.leader_id, "two leaders"
        return quorum

    def has_voters(self, node_id: int, names: set[str], *, is_secured: bool) -> Callable[[], bool]:
        """Return whether the leader knows the listeners of a controller, which has all of its log."""

        def is_ready() -> bool:
            arguments = (self.secured, self.admin) if is_secured else (self.opened, {})
            quorum = self.quorum(*arguments)
            if quorum is None:
                return False
            [voter] = [v for v in quorum.voters if v.replica_id == node_id]
            return {e.name for e in voter.endpoints} == names and voter.log_end_offset >= quorum.high_watermark

        return is_ready


def test_running_cluster_moves_its_controllers_from_an_open_to_a_secured_listener(tmp_path: Path) -> None:
    with LocalCluster(controllers=3, nodes=2) as cluster:
        move = Move(cluster, tmp_path)
        client = {"bootstrap.servers": cluster.bootstrap_servers}
        topics: list[str] = []

        def create_topic() -> None:
            """Show that the metadata moves on."""
            topics.append(f"after-{len(topics)}")
            with AdminClient(client) as admin:
                admin.create_topics([NewTopic(topics[-1], 1, 2)])[topics[-1]].result(DEADLINE_S)

        def in_sync() -> bool:
            with AdminClient(client) as admin:
                metadata = admin.list_topics(timeout=DEADLINE_S)
            return len(metadata.brokers) == 2 and all(
                len(each.isrs) == 2 for each in metadata.topics["t"].partitions.values()
            )

        with AdminClient(client) as admin:
            admin.create_topics([NewTopic("t", 2, 2)])["t"].result(DEADLINE_S)
        stored: list[bytes] = []
        with load(client, stored):
            for i, controller in cluster.controllers.items():
                listeners = f"GRPC://{move.opened[i]},SECURED://{move.secured[i]}"
                added = {
                    **move.login("controller"),
                    "listeners": listeners,
                    "controller.listener.names": "GRPC,SECURED",
                }
                move.restart(controller, added, move.has_voters(i, {"GRPC", "SECURED"}, is_secured=False))
                create_topic()
            switched = {
                "controller.listener.names": "SECURED,GRPC",
                "controller.quorum.voters": move.voters(move.secured),
            }
            for i, controller in cluster.controllers.items():
                move.restart(controller, switched, move.has_voters(i, {"GRPC", "SECURED"}, is_secured=True))
                create_topic()
            for node in cluster.nodes.values():
                move.restart(node, {**move.login("node"), **switched, "controller.listener.names": "SECURED"}, in_sync)
                create_topic()
            for i, controller in cluster.controllers.items():
                closed = {"controller.listener.names": "SECURED", "listeners": f"SECURED://{move.secured[i]}"}
                move.restart(controller, closed, move.has_voters(i, {"SECURED"}, is_secured=True))
                create_topic()
        quorum = move.quorum(move.secured, move.admin)
        assert quorum is not None
        assert {e.name for v in quorum.voters for e in v.endpoints} == {"SECURED"}
        assert move.quorum(move.secured, {**move.admin, "sasl.password": "another"}) is None
        for address in move.opened.values():
            host, _, port = address.rpartition(":")
            with pytest.raises(ConnectionRefusedError):
                socket.create_connection((host, int(port)), timeout=5)
        found: list[bytes] = []
        with Consumer({**client, "group.id": "g", "auto.offset.reset": "earliest"}) as consumer:
            consumer.subscribe(["t"])

            def is_read() -> bool:
                found.extend(message.value() for message in consumer.consume(500, 0.5))
                return set(stored) <= set(found)

            wait_for(is_read, "all acknowledged records to be read", DEADLINE_S)
            assert len(found) == len(set(found))
            assert set(topics) <= set(consumer.list_topics(timeout=DEADLINE_S).topics)
        assert cluster.failures == []
