"""A cluster with an authorizer in which certificates say who is who: its servers are super users, its client is not."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import grpc
import pytest
from acknowledged import wait_for
from certificates import Authority

from tidelog import AdminClient, Consumer, KafkaException, Producer
from tidelog.admin import AclBinding, NewTopic
from tidelog.testing import LocalCluster
from tidelog.v1 import admin_service_pb2, controller_service_pb2, raft_service_pb2

DEADLINE_S = 30
pytestmark = pytest.mark.costly


class Secured:
    """A cluster with certificates for its servers, for root and for alice."""

    def __init__(self, cluster: LocalCluster, folder: Path) -> None:
        self.cluster = cluster
        self._folder = folder

    def settings(self, user: str, **own: Any) -> dict[str, Any]:
        store = str(self._folder / f"{user}.pem")
        return {
            "bootstrap.servers": self.cluster.bootstrap_servers,
            **client_settings(self._folder, store),
            **{key.replace("_", "."): value for key, value in own.items()},
        }

    def controller_of(self, user: str) -> grpc.Channel:
        """Return a channel to a controller that does not lead."""
        leader = self.cluster.controller_leader()
        address = next(c.address for number, c in self.cluster.controllers.items() if number != leader)
        store = (self._folder / f"{user}.pem").read_bytes()
        authority = (self._folder / "ca.pem").read_bytes()
        return grpc.secure_channel(address, grpc.ssl_channel_credentials(authority, store, store))


def client_settings(folder: Path, store: str) -> dict[str, str]:
    return {
        "security.protocol": "SSL",
        "ssl.ca.location": str(folder / "ca.pem"),
        "ssl.certificate.location": store,
        "ssl.key.location": store,
    }


@pytest.fixture(scope="module")
def secured(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Secured]:
    folder, authority = tmp_path_factory.mktemp("stores"), Authority()
    for user in ("root", "alice"):
        authority.issue(user, hosts=()).write_pem(folder / f"{user}.pem")
    config = {
        "listener.security.protocol.map": "GRPC:GRPC_SSL,GRPC_SSL:GRPC_SSL,PLAINTEXT:SSL",
        "controller.listener.names": "GRPC_SSL",
        "ssl.keystore.type": "PEM",
        "ssl.keystore.location": authority.issue("server").write_pem(folder / "server.pem"),
        "ssl.truststore.type": "PEM",
        "ssl.truststore.location": authority.write_pem(folder / "ca.pem"),
        "ssl.client.auth": "required",
        "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
        "super.users": "User:CN=server;User:CN=root",
    }
    root = client_settings(folder, str(folder / "root.pem"))
    with LocalCluster(controllers=2, nodes=2, config=config, client_config=root) as cluster:
        yield Secured(cluster, folder)


def test_servers_work_together_and_clients_do_what_acls_allow(secured: Secured) -> None:
    with AdminClient(secured.settings("root")) as root, AdminClient(secured.settings("alice")) as alice:
        denied = alice.create_topics([NewTopic("t", 1, 2)])["t"]
        with pytest.raises(KafkaException, match="TOPIC_AUTHORIZATION_FAILED"):
            denied.result(DEADLINE_S)
        root.create_topics([NewTopic("t", 1, 2)])["t"].result(DEADLINE_S)
        with pytest.raises(KafkaException, match="CLUSTER_AUTHORIZATION_FAILED"):
            alice.describe_process(1).result(DEADLINE_S)
        assert root.describe_process(1).result(DEADLINE_S).software_version
        acls = [
            AclBinding(kind, name, "LITERAL", "User:CN=alice", "*", operation, "ALLOW")
            for kind, name, operation in (
                ("TOPIC", "t", "READ"),
                ("TOPIC", "t", "WRITE"),
                ("GROUP", "g", "READ"),
                ("TRANSACTIONAL_ID", "x", "WRITE"),
            )
        ]
        for future in root.create_acls(acls).values():
            future.result(DEADLINE_S)
        wait_for(lambda: set(alice.list_topics(timeout=DEADLINE_S).topics) == {"t"}, "the ACLs", DEADLINE_S)
    with Producer(secured.settings("alice", transactional_id="x", acks="all")) as producer:
        producer.init_transactions(DEADLINE_S)
        producer.begin_transaction()
        producer.produce("t", b"v")
        producer.commit_transaction(DEADLINE_S)
    own = {"group_id": "g", "auto_offset_reset": "earliest", "isolation_level": "read_committed"}
    with Consumer(secured.settings("alice", **own)) as consumer:
        consumer.subscribe(["t"])
        (message,) = consumer.consume(1, DEADLINE_S)
        assert message.value() == b"v"
        consumer.commit(asynchronous=False)


def denial(call: Any) -> str:
    with pytest.raises(grpc.RpcError) as caught:
        call()
    return f"{caught.value.code().name} {caught.value.details()}"


def test_controllers_accept_nodes_and_super_users_alone(secured: Secured) -> None:
    text = "PERMISSION_DENIED User:CN=alice is not authorized to {} CLUSTER kafka-cluster"
    with secured.controller_of("alice") as channel:
        for service, method, request, operation in (
            ("ControllerService", "RegisterBroker", controller_service_pb2.RegisterBrokerRequest(), "CLUSTER_ACTION"),
            ("ControllerService", "AlterPartition", controller_service_pb2.AlterPartitionRequest(), "CLUSTER_ACTION"),
            ("AdminService", "DescribeCluster", admin_service_pb2.DescribeClusterRequest(), "ALTER"),
            ("AdminService", "DescribeProcess", admin_service_pb2.DescribeProcessRequest(), "DESCRIBE"),
            ("AdminService", "UpdateFeatures", admin_service_pb2.UpdateFeaturesRequest(), "ALTER"),
        ):
            call = channel.unary_unary(f"/tidelog.v1.{service}/{method}")
            sent = request.SerializeToString()
            assert denial(lambda call=call, sent=sent: call(sent, timeout=DEADLINE_S)) == text.format(operation)
        follow = channel.unary_stream("/tidelog.v1.ControllerService/FollowMetadata")
        asked = controller_service_pb2.FollowMetadataRequest().SerializeToString()
        assert denial(lambda: next(follow(asked, timeout=DEADLINE_S))) == text.format("CLUSTER_ACTION")
        exchange = channel.stream_stream("/tidelog.v1.RaftService/Exchange")
        hello = raft_service_pb2.ExchangeRequest().SerializeToString()
        assert denial(lambda: next(exchange(iter([hello]), timeout=DEADLINE_S))) == text.format("CLUSTER_ACTION")
    with secured.controller_of("root") as channel:
        describe = channel.unary_unary("/tidelog.v1.AdminService/DescribeCluster")
        assert describe(admin_service_pb2.DescribeClusterRequest().SerializeToString(), timeout=DEADLINE_S)
