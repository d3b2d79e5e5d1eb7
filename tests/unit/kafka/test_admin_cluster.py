"""UpdateFeatures, DescribeQuorum, changes of voters and UnregisterBroker, against a controller's core."""

import time
from dataclasses import replace

import pytest
from kafka_admin import AdminNode, name_of, versions_of

from tidelog_foundation.errors import ErrorCode, error_for
from tidelog_foundation.requests import quorum as requests
from tidelog_foundation.requests.addresses import ControllerEndpoint, Endpoint
from tidelog_node.kafka.protocol.messages.quorum import (
    AddRaftVoterRequest,
    AddRaftVoterResponse,
    CurrentLeader,
    DescribeQuorumRequest,
    DescribeQuorumResponse,
    FeatureUpdateKey,
    KRaftVersionFeature,
    QuorumListener,
    QuorumPartition,
    QuorumTopic,
    RemoveRaftVoterRequest,
    RemoveRaftVoterResponse,
    UnregisterBrokerRequest,
    UnregisterBrokerResponse,
    UpdateFeaturesRequest,
    UpdateFeaturesResponse,
    UpdateRaftVoterRequest,
    UpdateRaftVoterResponse,
)

TIMED_OUT = error_for(ErrorCode.REQUEST_TIMED_OUT, "no controller answered")
ELR = "eligible.leader.replicas.version"
UPGRADE, SAFE, UNSAFE = 1, 2, 3


def update(node, *keys, version=2, validate_only=False):
    """Return (error, {feature: error})."""
    request = UpdateFeaturesRequest(5_000, list(keys), validate_only)
    response = node.ask(request, version, UpdateFeaturesResponse)
    assert (response.error_message is None) is (response.error_code == 0)
    return name_of(response.error_code), {r.feature: name_of(r.error_code) for r in response.results}


@pytest.mark.parametrize("version", versions_of(UpdateFeaturesRequest))
def test_update_features_raises_and_lowers_levels(version):
    node = AdminNode(1)
    result = {} if version >= 2 else {ELR: None}
    assert update(node, FeatureUpdateKey(ELR, 1), version=version) == (None, result)
    assert node.image.feature_levels[ELR] == 1
    lower = FeatureUpdateKey(ELR, 0, allow_downgrade=version == 0, upgrade_type=SAFE)
    assert update(node, lower, version=version) == (None, result)
    assert node.image.feature_levels.get(ELR, 0) == 0


@pytest.mark.parametrize("version", versions_of(UpdateFeaturesRequest))
def test_update_features_refuses_all_with_one_error(version):
    node = AdminNode(1)
    code = "INVALID_UPDATE_VERSION"
    result = {} if version >= 2 else {ELR: code, "no.such": code}
    wanted = [FeatureUpdateKey(ELR, 1), FeatureUpdateKey("no.such", 1)]
    assert update(node, *wanted, version=version) == (code, result)
    assert ELR not in node.image.feature_levels


@pytest.mark.parametrize("kind", [0, 4])
def test_update_features_refuses_another_type_of_change(kind):
    assert update(AdminNode(1), FeatureUpdateKey(ELR, 1, upgrade_type=kind)) == ("INVALID_UPDATE_VERSION", {})


def test_update_features_that_only_validates_changes_nothing():
    node = AdminNode(1)
    assert update(node, FeatureUpdateKey(ELR, 1), validate_only=True) == (None, {})
    assert ELR not in node.image.feature_levels
    node.controller.failure = TIMED_OUT
    assert update(node, FeatureUpdateKey(ELR, 1))[0] == "REQUEST_TIMED_OUT"


def quorum(node, topic="__cluster_metadata", index=0, version=2):
    request = DescribeQuorumRequest([QuorumTopic(topic, [QuorumPartition(index)])])
    return node.ask(request, version, DescribeQuorumResponse)


def replica(replica_id, log_end_offset, age_ms):
    return requests.QuorumReplica(
        replica_id=replica_id,
        log_end_offset=log_end_offset,
        endpoint=Endpoint(host=f"c{replica_id}", port=9_093),
        directory_id=bytes([replica_id]) * 16 if replica_id < 3 else b"",
        last_fetch_age_ms=age_ms,
        last_caught_up_age_ms=age_ms,
    )


@pytest.mark.parametrize("version", versions_of(DescribeQuorumRequest))
def test_describe_quorum_shows_the_controllers_with_kafkas_offsets(version):
    node = AdminNode(1)
    node.controller.quorum = requests.DescribeQuorumResponse(
        leader_id=1,
        leader_epoch=7,
        high_watermark=99,
        voters=(replica(1, 99, 0), replica(2, 98, 1_000)),
        observers=(replica(3, 50, -1),),
        brokers=(
            requests.BrokerProgress(broker_id=1, metadata_offset=98, last_heartbeat_age_ms=600),
            requests.BrokerProgress(broker_id=4, metadata_offset=99, last_heartbeat_age_ms=500),
            requests.BrokerProgress(broker_id=5, metadata_offset=97, last_heartbeat_age_ms=700),
        ),
    )
    before_ms = time.time_ns() // 1_000_000
    response = quorum(node, version=version)
    after_ms = time.time_ns() // 1_000_000
    [topic] = response.topics
    [state] = topic.partitions
    assert (topic.topic_name, state.partition_index) == ("__cluster_metadata", 0)
    assert (response.error_code, state.error_code, state.error_message or None) == (0, 0, None)
    assert (state.leader_id, state.leader_epoch, state.high_watermark) == (1, 7, 100)
    replicas = [*state.current_voters, *state.observers]
    assert [(r.replica_id, r.log_end_offset) for r in replicas] == [(1, 100), (2, 99), (3, 51), (4, 100), (5, 98)]
    times = [(r.last_fetch_timestamp, r.last_caught_up_timestamp) for r in replicas]
    if version >= 1:
        assert before_ms <= times[0][0] == times[0][1] <= after_ms
        assert before_ms - 1_000 <= times[1][0] <= after_ms - 1_000
        assert before_ms - 500 <= times[3][0] == times[3][1] <= after_ms - 500
        assert (times[4][0] > before_ms - 1_000, times[4][1]) == (True, -1)
    assert times[2] == (-1, -1)
    assert replicas[1].replica_directory_id == (b"\2" * 16 if version >= 2 else bytes(16))
    assert [(n.node_id, n.listeners[0].host, n.listeners[0].port) for n in response.nodes] == (
        [(1, "c1", 9_093), (2, "c2", 9_093)] if version >= 2 else []
    )


@pytest.mark.parametrize(("topic", "index"), [("t", 0), ("__cluster_metadata", 1)])
def test_describe_quorum_knows_the_metadata_log_alone(topic, index):
    [answered] = quorum(AdminNode(1), topic, index).topics
    [state] = answered.partitions
    assert (answered.topic_name, state.partition_index) == (topic, index)
    assert name_of(state.error_code) == "UNKNOWN_TOPIC_OR_PARTITION"


def test_describe_quorum_without_controllers_times_out():
    node = AdminNode(1)
    node.controller.failure = TIMED_OUT
    response = quorum(node)
    assert (name_of(response.error_code), response.topics) == ("REQUEST_TIMED_OUT", [])


DIRECTORY = bytes(range(16))
HERE = QuorumListener("CONTROLLER", "c4", 9093)


def add_voter(node, *listeners, cluster_id="c1", directory_id=DIRECTORY):
    request = AddRaftVoterRequest(cluster_id, 5_000, 4, directory_id, list(listeners))
    response = node.ask(request, 0, AddRaftVoterResponse)
    assert (response.error_message is None) is (response.error_code == 0)
    return name_of(response.error_code)


def remove_voter(node, cluster_id=None, directory_id=DIRECTORY):
    response = node.ask(RemoveRaftVoterRequest(cluster_id, 4, directory_id), 0, RemoveRaftVoterResponse)
    assert (response.error_message is None) is (response.error_code == 0)
    return name_of(response.error_code)


def test_voter_is_added_and_removed_by_the_controllers():
    node = AdminNode(1)
    assert add_voter(node, HERE) is None
    assert add_voter(node, HERE, QuorumListener("grpc", "c4", 9094), cluster_id=None, directory_id=bytes(16)) is None
    assert remove_voter(node) is None
    assert remove_voter(node, cluster_id="c1", directory_id=bytes(16)) is None
    here, other = ControllerEndpoint("c4", 9093, "CONTROLLER"), ControllerEndpoint("c4", 9094, "GRPC")
    assert node.controller.voter_changes == [
        requests.AddRaftVoterRequest(voter_id=4, directory_id=DIRECTORY, endpoints=(here,), timeout_ms=5_000),
        requests.AddRaftVoterRequest(voter_id=4, directory_id=b"", endpoints=(here, other), timeout_ms=5_000),
        requests.RemoveRaftVoterRequest(voter_id=4, directory_id=DIRECTORY),
        requests.RemoveRaftVoterRequest(voter_id=4),
    ]


@pytest.mark.parametrize(
    ("endpoints", "shown"),
    [
        ((), [QuorumListener("GRPC_SSL", "c2", 7)]),
        ((ControllerEndpoint("c2", 7),), [QuorumListener("GRPC_SSL", "c2", 7)]),
        (
            (ControllerEndpoint("c2", 7, "GRPC_SSL"), ControllerEndpoint("c2", 8, "OPEN")),
            [QuorumListener("GRPC_SSL", "c2", 7), QuorumListener("OPEN", "c2", 8)],
        ),
    ],
)
def test_listeners_of_controllers_have_their_names_or_the_one_that_the_node_knows(endpoints, shown):
    node = AdminNode(1)
    leader = requests.QuorumReplica(2, 0, Endpoint("c2", 7), b"", 0, 0, endpoints)
    node.controller.quorum = requests.DescribeQuorumResponse(leader_id=2, voters=(leader,))
    node.node = replace(node.node, context=replace(node.node.context, controller_listener="GRPC_SSL"))
    [controller] = quorum(node, version=2).nodes
    assert controller.listeners == shown


def test_change_of_voters_is_refused_with_the_controllers_error_or_before_it_is_passed_on():
    node = AdminNode(1)
    assert add_voter(node, HERE, cluster_id="c2") == "INCONSISTENT_CLUSTER_ID"
    assert remove_voter(node, cluster_id="c2") == "INCONSISTENT_CLUSTER_ID"
    assert add_voter(node) == "INVALID_REQUEST"
    node.controller.failure = error_for(ErrorCode.VOTER_NOT_FOUND, "no replica 4 follows the log")
    assert add_voter(node, HERE) == "VOTER_NOT_FOUND"
    assert remove_voter(node) == "VOTER_NOT_FOUND"
    assert node.controller.voter_changes == []


def update_voter(node, *listeners, cluster_id="c1", directory_id=DIRECTORY, levels=(0, 1)):
    feature = KRaftVersionFeature(*levels)
    request = UpdateRaftVoterRequest(cluster_id, 3, 4, directory_id, list(listeners), feature)
    return node.ask(request, 0, UpdateRaftVoterResponse)


def led_by_controller_2(node):
    leader = requests.QuorumReplica(2, 0, Endpoint("c2", 7), b"", 0, 0)
    node.controller.quorum = requests.DescribeQuorumResponse(leader_id=2, leader_epoch=3, voters=(leader,))
    return CurrentLeader(2, 3, "c2", 7)


def test_address_of_a_voter_is_changed_by_the_controllers_and_the_answer_names_the_leader():
    node = AdminNode(1)
    leader = led_by_controller_2(node)
    assert update_voter(node, HERE) == UpdateRaftVoterResponse(current_leader=leader)
    endpoints = (ControllerEndpoint("c4", 9093, "CONTROLLER"),)
    assert node.controller.voter_changes == [
        requests.UpdateRaftVoterRequest(voter_id=4, directory_id=DIRECTORY, endpoints=endpoints, leader_epoch=3)
    ]


def test_change_of_a_voters_address_is_refused_before_it_is_passed_on():
    node = AdminNode(1)
    leader = led_by_controller_2(node)
    assert name_of(update_voter(node, HERE, cluster_id="c2").error_code) == "INCONSISTENT_CLUSTER_ID"
    for refused in (
        update_voter(node, HERE, directory_id=bytes(16)),
        update_voter(node, HERE, levels=(0, 0)),
        update_voter(node, HERE, levels=(2, 2)),
        update_voter(node),
    ):
        assert (name_of(refused.error_code), refused.current_leader) == ("INVALID_REQUEST", leader)
    node.controller.failure = TIMED_OUT
    assert update_voter(node, HERE) == UpdateRaftVoterResponse(error_code=ErrorCode.REQUEST_TIMED_OUT.code)
    assert node.controller.voter_changes == []


def test_unregister_broker_forgets_a_broker():
    node = AdminNode(1, 2)

    def unregister(broker_id):
        response = node.ask(UnregisterBrokerRequest(broker_id), 0, UnregisterBrokerResponse)
        assert (response.error_message is None) is (response.error_code == 0)
        return name_of(response.error_code)

    assert unregister(9) == "BROKER_ID_NOT_REGISTERED"
    node.controller.fence(2)
    assert unregister(2) is None
    assert 2 not in node.image.brokers
