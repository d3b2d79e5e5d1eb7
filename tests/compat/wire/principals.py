"""Requests of every API by callers of every kind, at two brokers that are secured alike.

The super user; ``alice``, whom ACLs allow everything; ``token``, a delegation token of alice; ``bob``, whom they allow
and deny everything; ``carol``, of whom no ACL speaks; ``erin``, whom they allow everything from another host; ``dave``,
whom they allow a part; and ``nobody``, who has not logged in.
"""

from __future__ import annotations

import base64
import itertools
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Final

from compat.wire.authorization import NAMES, OF_CLUSTER
from compat.wire.case import Case
from compat.wire.configs import TOPIC
from compat.wire.produce import batch_of, transactional_produce
from compat.wire.sasl import PLAIN_MODULE, SCRAM_MODULE
from compat.wire.side import CLOSED, UNKNOWN_ID, Side
from kafka_requests import FetchPartition, FetchRequest, FetchTopic

from tidelog_foundation.sasl import SaslLogin
from tidelog_foundation.sasl.plain import PlainLogin
from tidelog_foundation.sasl.scram import TOKEN_AUTH, ScramLogin
from tidelog_foundation.sasl.scram_credentials import ScramMechanism
from tidelog_node.kafka.protocol.fields import Message
from tidelog_node.kafka.protocol.messages import (
    acls,
    api_versions,
    configs,
    delegation_tokens,
    group_admin,
    group_offsets,
    log_dirs,
    metadata,
    offsets,
    producers,
    quorum,
    replicas,
    topics,
    transactions,
)
from tidelog_node.kafka.protocol.messages.delegation_tokens import PrincipalData

_TOPICS: Final = ("az-open", "az-seen", "az-denied")
_ASKED: Final = (*_TOPICS, "az-none")
USERS: Final = ("nobody", "carol", "bob", "erin", "dave", "alice", "token", "admin")
"""In the order in which they ask: those who can change something come last."""
_PASSWORD: Final = "a-secret"
_TOPIC, _GROUP, _CLUSTER, _TRANSACTIONAL_ID, _TOKEN, _USER = 2, 3, 4, 5, 6, 7
_ALL, _READ, _WRITE, _DESCRIBE = 2, 3, 4, 8
_LITERAL, _PREFIXED, _DENY, _ALLOW = 3, 4, 2, 3
_KINDS: Final = {
    _TOPIC: "*",
    _GROUP: "*",
    _CLUSTER: "kafka-cluster",
    _TRANSACTIONAL_ID: "*",
    _TOKEN: "*",
    _USER: "*",
}
_UNKNOWN_PRODUCER: Final = 987_654
_nonces = itertools.count()
SETTINGS: Final[dict[str, object]] = {
    "listener.security.protocol.map": "PLAINTEXT:SASL_PLAINTEXT",
    "inter.broker.listener.name": "PLAINTEXT",
    "sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-256",
    "sasl.mechanism.inter.broker.protocol": "PLAIN",
    "listener.name.plaintext.plain.sasl.jaas.config": f"{PLAIN_MODULE} required username=node password={_PASSWORD} "
    f"user_node={_PASSWORD} " + " ".join(f"user_{user}={_PASSWORD}" for user in USERS) + ";",
    "listener.name.plaintext.scram-sha-256.sasl.jaas.config": f"{SCRAM_MODULE} required;",
    "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    # Brokers come to the controller, whose listener is open, as ANONYMOUS.
    "super.users": "User:admin;User:node;User:ANONYMOUS",
    "delegation.token.secret.key": "secret",
    # Callers set the retention to a second.
    "log.retention.check.interval.ms": 24 * 60 * 60 * 1_000,
}


class Callers:
    """The connections of all users to one broker."""

    def __init__(self, name: str, servers: str) -> None:
        self._name, self._servers = name, servers
        self.admin = self._side("admin", _plain("admin"))

    def prepare(self) -> dict[str, Side]:
        """Create topics, ACLs, groups' offsets and tokens; return the connection of each user."""
        self.admin.wait_until_ready()
        self.admin.wait_for(lambda: _is_coordinated(self.admin), "have a coordinator of transactions")
        self.admin.create(_TOPICS, 2)
        self.admin.create([f"az-gone-{user}" for user in USERS], 1)
        _create_acls(self.admin)
        _commit_offsets(self.admin)
        sides = {user: self._side(user, _plain(user)) for user in USERS if user not in ("nobody", "token", "admin")}
        sides |= {"nobody": self._side("nobody", None), "admin": self.admin}
        token = _create_token(sides["alice"])
        sides["token"] = self._side("token", _token_login(token.token_id, bytes(token.hmac)))
        known = metadata.MetadataRequest([])
        sides["token"].wait_for(lambda: sides["token"].ask(known, 4) != CLOSED, "know the token")
        for side in sides.values():
            side.topic_ids = self.admin.topic_ids
            side.kept["hmac"] = bytes(token.hmac)
        return {user: sides[user] for user in USERS}

    def _side(self, user: str, login: SaslLogin | None) -> Side:
        return Side(self._name, self._servers, login, user)


def _is_coordinated(admin: Side) -> bool:
    """Ask for the coordinator, whereupon a broker creates its topic, and for an id."""
    names = ("t-free", "t-denied")
    found = [admin.ask(group_admin.FindCoordinatorRequest(name, 1), 1) for name in names]
    found += [admin.ask(producers.InitProducerIdRequest(name, 1_000), 4) for name in names]
    return not any(response.error_code for response in found)


def _plain(user: str) -> SaslLogin:
    return PlainLogin(user, _PASSWORD)


def _token_login(token_id: str, hmac: bytes) -> SaslLogin:
    password = base64.b64encode(hmac).decode()
    nonce: Callable[[], str] = lambda: f"nonce-{next(_nonces)}"  # noqa: E731
    return ScramLogin(ScramMechanism.SCRAM_SHA_256, token_id, password, nonce, {TOKEN_AUTH: "true"})


def _create_token(alice: Side) -> delegation_tokens.CreateDelegationTokenResponse:
    created: delegation_tokens.CreateDelegationTokenResponse
    created = alice.ask(delegation_tokens.CreateDelegationTokenRequest(None, None, [], -1), 3)
    assert created.error_code == 0, created
    return created


def _create_acls(admin: Side) -> None:
    made = [
        *(_acl(kind, name, "alice", _ALL) for kind, name in _KINDS.items()),
        *(_acl(kind, name, "bob", _ALL, permission) for kind, name in _KINDS.items() for permission in (_ALLOW, _DENY)),
        *(_acl(kind, name, "erin", _ALL, host="10.0.0.1") for kind, name in _KINDS.items()),
        *(_acl(_TOPIC, "az-o", "dave", operation, pattern=_PREFIXED) for operation in (_READ, _WRITE)),
        _acl(_TOPIC, "az-seen", "dave", _DESCRIBE),
        _acl(_GROUP, "g-free", "dave", _ALL),
        _acl(_GROUP, "g-seen", "dave", _DESCRIBE),
        _acl(_TRANSACTIONAL_ID, "t-free", "dave", _WRITE),
        _acl(_CLUSTER, "kafka-cluster", "dave", _DESCRIBE),
        _acl(_TOPIC, "last", "dave", _READ),
    ]
    response = admin.ask(acls.CreateAclsRequest(made), 3)
    assert not any(result.error_code for result in response.results), response
    asked = acls.DescribeAclsRequest(_TOPIC, "last", _LITERAL, None, None, 1, 1)
    admin.wait_for(lambda: bool(admin.ask(asked, 3).resources), "know the ACLs")


def _acl(
    kind: int, name: str, user: str, operation: int, permission: int = _ALLOW, host: str = "*", pattern: int = _LITERAL
) -> acls.AclCreation:
    return acls.AclCreation(kind, name, pattern, f"User:{user}", host, operation, permission)


def _commit_offsets(admin: Side) -> None:
    for group in ("g-free", "g-seen", "g-kept"):
        committed = [
            group_offsets.OffsetCommitRequestTopic(n, partitions=[group_offsets.OffsetCommitRequestPartition(0, 1)])
            for n in _TOPICS
        ]
        response = admin.ask(group_offsets.OffsetCommitRequest(group, topics=committed), 8)
        assert not any(p.error_code for t in response.topics for p in t.partitions), response


def _described(*owners: str | None) -> Callable[[Side], Message]:
    """Return DescribeDelegationToken of owners, in whose names ``{}`` stands for the caller; None is all."""

    def request(side: Side) -> Message:
        named = [PrincipalData("User", owner.format(side.user)) for owner in owners if owner is not None]
        return delegation_tokens.DescribeDelegationTokenRequest(named or None)

    return request


_TOKEN_TIMES: Final = ["hmac", "token_id", "issue_timestamp", "expiry_timestamp", "max_timestamp"]
_TOKEN_TIMES_MS: Final = [*_TOKEN_TIMES, "issue_timestamp_ms", "expiry_timestamp_ms", "max_timestamp_ms"]
_PLACES: Final = ["topic_id", "cluster_id", "brokers", "controller_id", "leader_id", "replica_nodes", "isr_nodes"]

_MORE: Final = (
    Case(
        "versions",
        api_versions.ApiVersionsRequest("c", "1"),
        (0, 4),
        ["api_keys", "supported_features", "finalized_features"],
    ),
    Case(
        "metadata of all topics",
        metadata.MetadataRequest(None, False, True, True),
        (8, 12),
        ignore=_PLACES,
    ),
    Case("describe all partitions", metadata.DescribeTopicPartitionsRequest([]), ignore=_PLACES),
    *(
        Case(
            f"produce to {name}",
            lambda side, name=name: transactional_produce(
                None, name, side.topic_ids.get(name, UNKNOWN_ID), 0, batch_of(-1, -1, -1, is_transactional=False)
            ),
            (3, 8, 12, 13),
            ["base_offset"],
        )
        for name in _ASKED
    ),
    *(
        Case(
            f"produce in a transaction of {transactional_id}",
            lambda side, transactional_id=transactional_id: transactional_produce(
                transactional_id, "az-open", side.topic_ids["az-open"], 0, batch_of(_UNKNOWN_PRODUCER, 0, 0)
            ),
            (3, 11, 12, 13),
            ["base_offset"],
        )
        for transactional_id in ("t-free", "t-denied")
    ),
    Case(
        "fetch",
        lambda side: FetchRequest(
            max_wait_ms=0,
            max_bytes=1_000,
            topics=[
                FetchTopic(n, side.topic_ids.get(n, UNKNOWN_ID), [FetchPartition(0, fetch_offset=0, max_bytes=1_000)])
                for n in _ASKED
            ],
        ),
        (4, 7, 11, 12, 13, 17),
        ["records", "session_id", "high_watermark", "last_stable_offset", "log_start_offset"],
    ),
    Case(
        "fetch as a follower",
        lambda side: FetchRequest(
            replica_id=7,
            max_wait_ms=0,
            max_bytes=1_000,
            topics=[FetchTopic("az-open", side.topic_ids["az-open"], [FetchPartition(0, fetch_offset=0, max_bytes=9)])],
        ),
        (4, 12, 13),
        ["records", "session_id", "high_watermark", "last_stable_offset", "log_start_offset"],
    ),
    Case(
        "ends of epochs",
        offsets.OffsetForLeaderEpochRequest(
            -1, [offsets.OffsetForLeaderTopic(n, [offsets.OffsetForLeaderPartition(0, -1, 0)]) for n in _ASKED]
        ),
        ignore=["end_offset", "leader_epoch"],
    ),
    Case(
        "commit in a transaction",
        transactions.TxnOffsetCommitRequest(
            "t-free",
            "g-free",
            1,
            0,
            topics=[
                transactions.TxnOffsetCommitRequestTopic(
                    n, [transactions.TxnOffsetCommitRequestPartition(0, 1, -1, "")]
                )
                for n in _ASKED
            ],
        ),
    ),
    *(
        Case(
            f"commit in a transaction of {transactional_id} in {group}",
            transactions.TxnOffsetCommitRequest(
                transactional_id,
                group,
                1,
                0,
                topics=[
                    transactions.TxnOffsetCommitRequestTopic(
                        "az-open", [transactions.TxnOffsetCommitRequestPartition(0, 1, -1, "")]
                    )
                ],
            ),
        )
        for transactional_id, group in (("t-denied", "g-free"), ("t-free", "g-denied"))
    ),
    Case("list transactions", transactions.ListTransactionsRequest(), ignore=["producer_id"]),
    Case("list groups", group_admin.ListGroupsRequest(), ignore=["group_type"]),
    Case(
        "delete topics by name",
        lambda side: topics.DeleteTopicsRequest(topic_names=["az-none"], timeout_ms=5_000),
        (1, 5),
    ),
    Case(
        "delete topics by id",
        lambda side: topics.DeleteTopicsRequest([topics.DeleteTopicState(None, UNKNOWN_ID)], timeout_ms=5_000),
        (6,),
    ),
    Case(
        "delete a topic by id",
        lambda side: topics.DeleteTopicsRequest(
            [topics.DeleteTopicState(None, side.topic_ids[f"az-gone-{side.user}"])], timeout_ms=5_000
        ),
        (6,),
    ),
    Case(
        "replace settings",
        configs.AlterConfigsRequest(
            [configs.AlterConfigsResource(TOPIC, n, [configs.AlterableConfig("retention.ms", "1000")]) for n in _ASKED],
            True,
        ),
    ),
    Case(
        "partitions in log directories",
        log_dirs.DescribeLogDirsRequest([log_dirs.DescribableLogDirTopic(n, [0]) for n in _TOPICS]),
        ignore=["log_dir", "partition_size", "total_bytes", "usable_bytes"],
    ),
    Case("acls of one topic", acls.DescribeAclsRequest(_TOPIC, "az-seen", _LITERAL, None, None, 1, 1)),
    Case("delete no acls", acls.DeleteAclsRequest([acls.DeleteAclsFilter(_TOPIC, "no-such", 3, None, None, 1, 1)])),
    Case("elect", replicas.ElectLeadersRequest(0, [replicas.TopicPartitions("az-open", [0])], 1_000)),
    Case(
        "reassign",
        replicas.AlterPartitionReassignmentsRequest(
            1_000, True, [replicas.ReassignableTopic("az-none", [replicas.ReassignablePartition(0, [1])])]
        ),
    ),
    Case(
        "quorum",
        quorum.DescribeQuorumRequest([quorum.QuorumTopic("__cluster_metadata", [quorum.QuorumPartition(0)])]),
        ignore=["leader_id", "leader_epoch", "high_watermark", "current_voters", "observers", "nodes"],
    ),
    *(
        Case(
            f"create a token of {'another' if for_another else 'oneself'}",
            lambda side, for_another=for_another: delegation_tokens.CreateDelegationTokenRequest(
                *(("User", f"frank-of-{side.user}") if for_another else (None, None)), [], -1
            ),
            (3,),
            _TOKEN_TIMES_MS,
        )
        for for_another in (False, True)
    ),
    *(
        Case(f"describe tokens of {name}", _described(*owners), (1, 3), _TOKEN_TIMES, settles=True)
        for name, owners in (
            ("all", (None,)),
            ("alice", ("alice",)),
            ("another", ("frank-of-{}",)),
            ("nobody", ("nobody",)),
            ("two", ("alice", "frank-of-{}")),
        )
    ),
    Case(
        "renew a token",
        lambda side: delegation_tokens.RenewDelegationTokenRequest(side.kept["hmac"], -1),
        ignore=_TOKEN_TIMES_MS,
    ),
    Case(
        "expire a token later",
        lambda side: delegation_tokens.ExpireDelegationTokenRequest(side.kept["hmac"], 3_600_000),
        ignore=_TOKEN_TIMES_MS,
    ),
    Case(
        "producer id of t-free", producers.InitProducerIdRequest("t-free", 1_000), ignore=["producer_epoch"], waits=True
    ),
    Case("add a voter", quorum.AddRaftVoterRequest("other", 1_000, 9, bytes(16), [])),
    Case("remove a voter", quorum.RemoveRaftVoterRequest("other", 9, bytes(16))),
)
_REPLACED: Final = frozenset(
    (
        "authorization: metadata",  # It would create a topic.
        "authorization of the cluster: acls",
        "authorization of the cluster: delete acls",
        "authorization of the cluster: log directories",
        "authorization of the cluster: quorum",
        "authorization of the cluster: elect",
        "authorization of the cluster: groups",
    )
)
_IGNORED: Final = {"authorization: describe producers": ["last_timestamp"]}
"""Fields that earlier requests change."""
CASES: Final = (
    *(
        replace(case, ignore=[*case.ignore, *_IGNORED.get(case.name, ())])
        for case in (*NAMES, *OF_CLUSTER)
        if case.name not in _REPLACED
    ),
    *_MORE,
)


def callers(kafka: str, tidelog: str) -> Mapping[str, tuple[Side, Side]]:
    """Prepare both brokers, given by their addresses; return the connections of each user to Kafka and to us."""
    theirs, ours = (Callers(name, servers).prepare() for name, servers in (("kafka", kafka), ("tidelog", tidelog)))
    return {user: (theirs[user], ours[user]) for user in USERS}
