"""Groups on real processes: no acknowledged offset is lost, and members find each other again, whoever is killed."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator

import grpc
import pytest
from acknowledged import create_topic

from tidelog.testing import LocalCluster
from tidelog.v1 import group_service_pb2 as pb
from tidelog.v1.group_service_pb2_grpc import GroupServiceStub
from tidelog_foundation.errors import ErrorCode

_DEADLINE_S = 30.0
_PROTOCOL = pb.GroupProtocol(name="range", metadata=b"")
_GROUPS = [f"group-{number}" for number in range(8)]


class GroupClient:
    """Asks the coordinator of each group, whichever node that is now."""

    def __init__(self, cluster: LocalCluster) -> None:
        self._channels = {n.id: grpc.insecure_channel(n.address) for n in cluster.nodes.values()}
        self.nodes = {node_id: GroupServiceStub(channel) for node_id, channel in self._channels.items()}

    def close(self) -> None:
        for channel in self._channels.values():
            channel.close()

    def coordinator(self, group: str) -> int | None:
        """Return the node that coordinates a group; None while nobody says so."""
        for stub in self.nodes.values():
            try:
                found = stub.FindCoordinator(pb.FindCoordinatorRequest(group_ids=[group]), timeout=1).coordinators[0]
            except grpc.RpcError:
                continue
            if found.node_id >= 0:
                return found.node_id
        return None

    def ask(self, group: str, call: Callable[[GroupServiceStub], pb.Error | None]) -> None:
        """Call the group's coordinator until there is no error but one that the test is to see."""
        deadline = time.monotonic() + _DEADLINE_S
        problem: object = "nobody coordinates it"
        while time.monotonic() < deadline:
            node_id = self.coordinator(group)
            if node_id is not None:
                try:
                    problem = call(self.nodes[node_id])
                except grpc.RpcError as error:
                    problem = error
                if problem is None:
                    return
            time.sleep(0.05)
        raise AssertionError(f"{group}: {problem}")

    def commit(self, group: str, offset: int) -> None:
        partition = pb.OffsetCommitPartition(index=0, committed_offset=offset)
        topic = pb.OffsetCommitTopic(name="t", partitions=[partition])
        request = pb.OffsetCommitRequest(group_id=group, generation_id_or_member_epoch=-1, topics=[topic])

        def call(stub: GroupServiceStub) -> pb.Error | None:
            result = stub.OffsetCommit(request, timeout=10).topics[0].partitions[0]
            return result.error if result.HasField("error") else None

        self.ask(group, call)

    def committed(self, group: str) -> int:
        offsets = []
        request = pb.OffsetFetchRequest(groups=[pb.OffsetFetchGroup(group_id=group, all_topics=True)])

        def call(stub: GroupServiceStub) -> pb.Error | None:
            result = stub.OffsetFetch(request, timeout=10).groups[0]
            if result.HasField("error"):
                return result.error
            offsets.extend(p.committed_offset for t in result.topics for p in t.partitions)
            return None

        self.ask(group, call)
        return offsets[0] if offsets else -1

    def join(self, group: str, member_id: str = "") -> pb.JoinGroupResponse:
        """Join a group alone, as a new member or an old one, and sync; returns the answer to the join."""
        answers: list[pb.JoinGroupResponse] = []

        def call(stub: GroupServiceStub) -> pb.Error | None:
            nonlocal member_id
            request = pb.JoinGroupRequest(
                group_id=group,
                session_timeout_ms=10_000,
                rebalance_timeout_ms=10_000,
                member_id=member_id,
                protocol_type="consumer",
                protocols=[_PROTOCOL],
            )
            joined = stub.JoinGroup(request, timeout=10)
            if joined.HasField("error"):
                if joined.error.code == ErrorCode.MEMBER_ID_REQUIRED.code:
                    member_id = joined.member_id
                assert joined.error.code != ErrorCode.UNKNOWN_MEMBER_ID.code, joined
                return joined.error
            sync = pb.SyncGroupRequest(
                group_id=group,
                generation_id=joined.generation_id,
                member_id=joined.member_id,
                protocol_type="consumer",
                protocol_name="range",
                assignments=[pb.MemberAssignment(member_id=joined.member_id, assignment=b"all")],
            )
            synced = stub.SyncGroup(sync, timeout=10)
            if synced.HasField("error"):
                return synced.error
            assert synced.assignment == b"all"
            answers.append(joined)
            return None

        self.ask(group, call)
        return answers[0]


@pytest.fixture
def client_of() -> Iterator[Callable[[LocalCluster], GroupClient]]:
    clients: list[GroupClient] = []

    def make(cluster: LocalCluster) -> GroupClient:
        clients.append(GroupClient(cluster))
        return clients[-1]

    yield make
    for client in clients:
        client.close()


def test_group_goes_on_with_every_offset_when_its_coordinator_is_killed(
    client_of: Callable[[LocalCluster], GroupClient],
) -> None:
    with LocalCluster(controllers=1, nodes=3) as cluster:
        create_topic(cluster, "t", 1, 3)
        client = client_of(cluster)
        for offset in range(1, 6):
            for group in _GROUPS:
                client.commit(group, offset)
        joined = client.join("members")
        killed = client.coordinator("members")
        assert killed is not None
        cluster.nodes[killed].kill()

        again = client.join("members", joined.member_id)
        assert client.coordinator("members") != killed
        assert (again.member_id, again.generation_id) == (joined.member_id, joined.generation_id + 1)
        assert {group: client.committed(group) for group in _GROUPS} == dict.fromkeys(_GROUPS, 5)
        for group in _GROUPS:
            client.commit(group, 6)
        assert {group: client.committed(group) for group in _GROUPS} == dict.fromkeys(_GROUPS, 6)


def test_offsets_outlive_a_kill_of_the_whole_cluster(client_of: Callable[[LocalCluster], GroupClient]) -> None:
    with LocalCluster(controllers=1, nodes=2) as cluster:
        create_topic(cluster, "t", 1, 2)
        client = client_of(cluster)
        for offset in (1, 2, 3):
            for group in _GROUPS:
                client.commit(group, offset)
        processes = (*cluster.controllers.values(), *cluster.nodes.values())
        for process in processes:
            process.kill()
        for process in processes:
            process.start()
        cluster.wait_ready(60)
        again = client_of(cluster)
        assert {group: again.committed(group) for group in _GROUPS} == dict.fromkeys(_GROUPS, 3)
        again.commit(_GROUPS[0], 4)
        assert again.committed(_GROUPS[0]) == 4


def test_coordinator_that_was_stopped_for_a_while_does_not_tell_offsets_of_the_past(
    client_of: Callable[[LocalCluster], GroupClient],
) -> None:
    group = _GROUPS[0]
    request = pb.OffsetFetchRequest(groups=[pb.OffsetFetchGroup(group_id=group, all_topics=True)])
    with LocalCluster(controllers=1, nodes=3) as cluster:
        create_topic(cluster, "t", 1, 3)
        client = client_of(cluster)
        client.commit(group, 1)
        paused = client.coordinator(group)
        assert paused is not None
        stub = client.nodes.pop(paused)
        assert not stub.OffsetFetch(request, timeout=10).groups[0].HasField("error")
        cluster.nodes[paused].pause()
        asked = [stub.OffsetFetch.future(request, timeout=30) for _ in range(20)]
        deadline = time.monotonic() + _DEADLINE_S
        while client.coordinator(group) in (paused, None):
            assert time.monotonic() < deadline, "nobody else coordinates the group"
            time.sleep(0.05)
        client.commit(group, 2)
        cluster.nodes[paused].resume()
        answers = [answer.result().groups[0] for answer in asked]
        told = [p.committed_offset for answer in answers for t in answer.topics for p in t.partitions]
        assert set(told) <= {2}, "2 was acknowledged by then"
        client.nodes[paused] = stub
        assert client.committed(group) == 2
