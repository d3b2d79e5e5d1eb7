"""Requests of a caller who may do a part of them: by the names of resources, then by operations of the cluster.

Both brokers allow everything on resources without ACLs, and everybody is User:ANONYMOUS. A resource with an ACL of
another principal is denied.
"""

from __future__ import annotations

from compat.wire.case import Case, Family
from compat.wire.configs import BROKER, GROUP, TOPIC
from compat.wire.side import Side

from tidelog_node.kafka.protocol.messages import (
    acls,
    configs,
    group_admin,
    group_members,
    group_offsets,
    log_dirs,
    metadata,
    offsets,
    producers,
    quorum,
    quotas,
    replicas,
    scram,
    topics,
    transactions,
)

_TOPICS = ("az-open", "az-seen", "az-denied")
_CLUSTER, _TRANSACTIONAL_ID, _GROUP = 4, 5, 3
_ALL, _CREATE, _ALTER, _DESCRIBE, _DESCRIBE_CONFIGS, _ALTER_CONFIGS, _IDEMPOTENT = 2, 5, 7, 8, 10, 11, 12
_DENY, _ALLOW = 2, 3


def _acl(kind: int, name: str, principal: str, operation: int, permission: int = _ALLOW) -> acls.AclCreation:
    return acls.AclCreation(kind, name, 3, principal, "*", operation, permission)


def _prepare(side: Side) -> None:
    side.create(_TOPICS, 2)
    _create(
        side,
        _acl(2, "az-seen", "User:ANONYMOUS", _DESCRIBE),
        _acl(2, "az-denied", "User:other", _ALL),
        _acl(2, "az-none", "User:other", _ALL),
        _acl(_GROUP, "g-denied", "User:other", _ALL),
        _acl(_GROUP, "g-seen", "User:ANONYMOUS", _DESCRIBE),
        _acl(_TRANSACTIONAL_ID, "t-denied", "User:other", _ALL),
    )
    side.wait_for(lambda: _error_of_denied(side) == 29, "apply the ACLs")


def _error_of_denied(side: Side) -> int:
    asked = metadata.MetadataRequest([metadata.MetadataRequestTopic(name="az-none")], False)
    return int(side.ask(asked, 12).topics[0].error_code)


def _create(side: Side, *creations: acls.AclCreation) -> None:
    response = side.ask(acls.CreateAclsRequest(list(creations)), 3)
    assert not any(result.error_code for result in response.results), response


def _forbid_cluster(side: Side) -> None:
    operations = (_CREATE, _DESCRIBE, _DESCRIBE_CONFIGS, _ALTER_CONFIGS, _IDEMPOTENT)
    _create(
        side,
        _acl(_CLUSTER, "kafka-cluster", "User:ANONYMOUS", 9),
        *(_acl(_CLUSTER, "kafka-cluster", "User:ANONYMOUS", n, _DENY) for n in operations),
        _acl(_CLUSTER, "kafka-cluster", "User:ANONYMOUS", _ALTER, _DENY),
    )
    asked = acls.DescribeAclsRequest(1, None, 1, None, None, 1, 1)
    side.wait_for(lambda: side.ask(asked, 3).error_code == 31, "apply the ACLs of the cluster")


def _forbid_names(side: Side) -> None:
    _create(side, *(_acl(kind, "*", "User:ANONYMOUS", _ALL, _DENY) for kind in (2, _GROUP, _TRANSACTIONAL_ID)))
    asked = metadata.MetadataRequest([metadata.MetadataRequestTopic(name="az-open")], False)
    side.wait_for(lambda: side.ask(asked, 12).topics[0].error_code == 29, "apply the ACLs of all names")


_ALL_NAMES = (*_TOPICS, "az-none")


def _id(side: Side, name: str) -> bytes:
    return side.topic_ids[name]


NAMES = (
    Case(
        "authorization: metadata",
        metadata.MetadataRequest([metadata.MetadataRequestTopic(name=name) for name in _ALL_NAMES], True, False, False),
        ignore=["topic_id", "cluster_id", "brokers", "controller_id", "leader_id", "replica_nodes", "isr_nodes"],
    ),
    Case(
        "authorization: metadata with operations",
        metadata.MetadataRequest([metadata.MetadataRequestTopic(name=name) for name in _ALL_NAMES], False, True, True),
        (8, 9, 10),
        ignore=["topic_id", "cluster_id", "brokers", "controller_id", "leader_id", "replica_nodes", "isr_nodes"],
    ),
    Case(
        "authorization: metadata by id",
        lambda side: metadata.MetadataRequest(
            [metadata.MetadataRequestTopic(_id(side, name), None) for name in _TOPICS], False
        ),
        (12, 13),
        ignore=["topic_id", "cluster_id", "brokers", "controller_id", "leader_id", "replica_nodes", "isr_nodes"],
    ),
    Case(
        "authorization: describe partitions",
        metadata.DescribeTopicPartitionsRequest([metadata.DescribedTopicName(n) for n in _ALL_NAMES]),
        ignore=["topic_id", "leader_id", "replica_nodes", "isr_nodes"],
    ),
    Case(
        "authorization: list offsets",
        offsets.ListOffsetsRequest(
            -1, 0, [offsets.ListOffsetsTopic(n, [offsets.ListOffsetsPartition(0, -1, -1)]) for n in _ALL_NAMES]
        ),
    ),
    Case(
        "authorization: delete records",
        offsets.DeleteRecordsRequest(
            [offsets.DeleteRecordsTopic(n, [offsets.DeleteRecordsPartition(0, 0)]) for n in _ALL_NAMES], 5_000
        ),
    ),
    Case(
        "authorization: describe producers",
        producers.DescribeProducersRequest([producers.TopicRequest(n, [0]) for n in _ALL_NAMES]),
    ),
    Case(
        "authorization: create partitions",
        topics.CreatePartitionsRequest([topics.CreatePartitionsTopic(n, 2, None) for n in _ALL_NAMES], 5_000, True),
    ),
    Case(
        "authorization: create topics",
        topics.CreateTopicsRequest([topics.CreatableTopic(n, 1, 1) for n in _ALL_NAMES], 5_000, True),
        ignore=["topic_id"],
    ),
    Case(
        "authorization: describe settings",
        configs.DescribeConfigsRequest(
            [configs.DescribeConfigsResource(TOPIC, n, ["retention.ms"]) for n in _ALL_NAMES]
        ),
    ),
    Case(
        "authorization: alter settings",
        configs.IncrementalAlterConfigsRequest(
            [
                configs.IncrementalAlterConfigsResource(
                    TOPIC, n, [configs.IncrementalAlterableConfig("retention.ms", 0, "1000")]
                )
                for n in _ALL_NAMES
            ]
        ),
    ),
    Case(
        "authorization: replace settings of a group",
        configs.IncrementalAlterConfigsRequest([configs.IncrementalAlterConfigsResource(GROUP, "g-denied", [])]),
    ),
    Case("authorization: find groups", group_admin.FindCoordinatorRequest("g-denied", 0, ["g-denied", "g-seen"])),
    Case(
        "authorization: find transactions",
        group_admin.FindCoordinatorRequest("t-denied", 1, ["t-denied"]),
        (1, 2, 3, 4, 5, 6),
    ),
    Case("authorization: describe groups", group_admin.DescribeGroupsRequest(["g-denied", "g-seen"], False)),
    Case("authorization: describe groups with operations", group_admin.DescribeGroupsRequest(["g-seen"], True), (3, 6)),
    Case("authorization: describe consumer groups", group_admin.ConsumerGroupDescribeRequest(["g-denied"])),
    Case("authorization: delete groups", group_admin.DeleteGroupsRequest(["g-denied", "g-seen"])),
    Case("authorization: join", group_members.JoinGroupRequest("g-denied", 6_000, 6_000, "", None, "consumer")),
    Case("authorization: sync", group_members.SyncGroupRequest("g-denied", 1, "m")),
    Case("authorization: heartbeat", group_members.HeartbeatRequest("g-denied", 1, "m")),
    Case(
        "authorization: leave",
        group_members.LeaveGroupRequest("g-denied", "m", [group_members.MemberIdentity("m", None, None)]),
    ),
    Case("authorization: consumer heartbeat", group_members.ConsumerGroupHeartbeatRequest("g-denied", "m", 0)),
    Case(
        "authorization: consumer heartbeat on a topic",
        group_members.ConsumerGroupHeartbeatRequest(
            "g-free", "m", 0, None, None, 5_000, ["az-open", "az-denied"], None, None, []
        ),
        (0,),
    ),
    Case(
        "authorization: commit in a denied group",
        group_offsets.OffsetCommitRequest(
            "g-denied",
            topics=[
                group_offsets.OffsetCommitRequestTopic(
                    "az-open", partitions=[group_offsets.OffsetCommitRequestPartition(0, 1)]
                )
            ],
        ),
        (2, 5, 8, 9),
    ),
    Case(
        "authorization: commit on denied topics",
        group_offsets.OffsetCommitRequest(
            "g-free",
            topics=[
                group_offsets.OffsetCommitRequestTopic(n, partitions=[group_offsets.OffsetCommitRequestPartition(0, 1)])
                for n in _ALL_NAMES
            ],
        ),
        (2, 5, 8, 9),
    ),
    Case(
        "authorization: fetch offsets, one group",
        group_offsets.OffsetFetchRequest(
            "g-free", [group_offsets.OffsetFetchRequestTopic(n, partition_indexes=[0]) for n in _ALL_NAMES]
        ),
        (1, 5, 7),
    ),
    Case(
        "authorization: fetch offsets, a denied group",
        group_offsets.OffsetFetchRequest(
            "g-denied", [group_offsets.OffsetFetchRequestTopic("az-open", partition_indexes=[0])]
        ),
        (1, 2, 5, 7),
    ),
    Case(
        "authorization: fetch offsets, several groups",
        group_offsets.OffsetFetchRequest(
            groups=[
                group_offsets.OffsetFetchRequestGroup(
                    g, topics=[group_offsets.OffsetFetchRequestTopic(n, partition_indexes=[0]) for n in _ALL_NAMES]
                )
                for g in ("g-free", "g-denied")
            ]
        ),
        (8, 9),
    ),
    Case(
        "authorization: delete offsets",
        group_offsets.OffsetDeleteRequest(
            "g-denied",
            [group_offsets.OffsetDeleteRequestTopic("az-open", [group_offsets.OffsetDeleteRequestPartition(0)])],
        ),
    ),
    Case("authorization: producer id", producers.InitProducerIdRequest("t-denied", 1_000)),
    Case(
        "authorization: add offsets",
        transactions.AddOffsetsToTxnRequest("t-denied", 1, 0, "g-free"),
    ),
    Case("authorization: add offsets of a group", transactions.AddOffsetsToTxnRequest("t-free", 1, 0, "g-denied")),
    Case("authorization: end", transactions.EndTxnRequest("t-denied", 1, 0, True)),
    Case(
        "authorization: add partitions",
        transactions.AddPartitionsToTxnRequest(
            v3_and_below_transactional_id="t-free",
            v3_and_below_producer_id=1,
            v3_and_below_producer_epoch=0,
            v3_and_below_topics=[transactions.AddPartitionsToTxnTopic(n, [0]) for n in ("az-open", "az-denied")],
        ),
        (0, 3),
    ),
    Case("authorization: describe transactions", transactions.DescribeTransactionsRequest(["t-denied"])),
)

OF_CLUSTER = (
    Case(
        "authorization of the cluster: describe",
        metadata.DescribeClusterRequest(True),
        (0,),
        ["cluster_id", "brokers", "controller_id"],
    ),
    Case("authorization of the cluster: acls", acls.DescribeAclsRequest(1, None, 1, None, None, 1, 1)),
    Case("authorization of the cluster: create acls", acls.CreateAclsRequest([_acl(2, "x", "User:a", 3)] * 2)),
    Case(
        "authorization of the cluster: delete acls",
        acls.DeleteAclsRequest([acls.DeleteAclsFilter(1, None, 1, None, None, 1, 1)]),
    ),
    Case("authorization of the cluster: log directories", log_dirs.DescribeLogDirsRequest(None)),
    Case(
        "authorization of the cluster: move replicas",
        log_dirs.AlterReplicaLogDirsRequest(
            [log_dirs.AlterReplicaLogDir("/x", [log_dirs.AlterReplicaLogDirTopic("az-open", [0, 1])])]
        ),
    ),
    Case(
        "authorization of the cluster: settings",
        configs.DescribeConfigsRequest([configs.DescribeConfigsResource(BROKER, "1", ["node.id"])]),
    ),
    Case(
        "authorization of the cluster: alter settings",
        configs.IncrementalAlterConfigsRequest([configs.IncrementalAlterConfigsResource(BROKER, "1", [])]),
    ),
    Case("authorization of the cluster: resources", configs.ListConfigResourcesRequest()),
    Case(
        "authorization of the cluster: features", quorum.UpdateFeaturesRequest(1_000, [quorum.FeatureUpdateKey("x", 1)])
    ),
    Case("authorization of the cluster: unregister", quorum.UnregisterBrokerRequest(7)),
    Case(
        "authorization of the cluster: quorum",
        quorum.DescribeQuorumRequest([quorum.QuorumTopic("__cluster_metadata", [quorum.QuorumPartition(0)])]),
    ),
    Case("authorization of the cluster: quotas", quotas.DescribeClientQuotasRequest([], False)),
    Case(
        "authorization of the cluster: alter quotas",
        quotas.AlterClientQuotasRequest(
            [
                quotas.QuotaAlterationData(
                    [quotas.QuotaEntityData("user", "u")], [quotas.QuotaOpData("producer_byte_rate", 1.0, False)]
                )
            ]
        ),
    ),
    Case("authorization of the cluster: users", scram.DescribeUserScramCredentialsRequest([scram.UserName("u")])),
    Case(
        "authorization of the cluster: alter users",
        scram.AlterUserScramCredentialsRequest([scram.ScramCredentialDeletion("u", 1)]),
    ),
    Case(
        "authorization of the cluster: markers",
        transactions.WriteTxnMarkersRequest(
            [transactions.WritableTxnMarker(1, 0, True, [transactions.WritableTxnMarkerTopic("az-open", [0])], 0)]
        ),
        (1,),
    ),
    Case("authorization of the cluster: elect", replicas.ElectLeadersRequest(0, None, 1_000)),
    Case("authorization of the cluster: reassign", replicas.AlterPartitionReassignmentsRequest(1_000, True, [])),
    Case("authorization of the cluster: reassignments", replicas.ListPartitionReassignmentsRequest(1_000, None)),
    Case("authorization of the cluster: idempotent producer", producers.InitProducerIdRequest(None, 1_000), (0, 4)),
    Case("authorization of the cluster: groups", group_admin.ListGroupsRequest(), ignore=["groups"]),
    Case(
        "authorization of the cluster: create",
        topics.CreateTopicsRequest(
            [topics.CreatableTopic("az-new", 1, 1), topics.CreatableTopic("az-none", 1, 1)], 5_000, True
        ),
        (7,),
        ["topic_id", "configs"],
    ),
)
AUTHORIZATION = (
    Family("authorization", NAMES, _prepare),
    Family("authorization where all is denied", NAMES, _forbid_names),
    Family("authorization of the cluster", OF_CLUSTER, _forbid_cluster),
)
