"""The known differences of our responses from Apache Kafka 4.1's, with reasons. The list only shrinks."""

from __future__ import annotations

import re
from collections.abc import Collection
from dataclasses import dataclass, field

from compat.wire.compare import ABSENT, THERE, Difference


@dataclass(frozen=True, slots=True)
class Known:
    """Differences of one kind: ``*`` stands for anything in the name of a case and in the path of a field."""

    why: str
    case: str
    at: str
    kafka: Collection[object] = field(default=())
    tidelog: Collection[object] = field(default=())
    """The values on either side; none: whatever they are."""

    def covers(self, difference: Difference) -> bool:
        return (
            _matches(self.case, difference.case)
            and _matches(self.at, difference.at)
            and (not self.kafka or difference.kafka in self.kafka)
            and (not self.tidelog or difference.tidelog in self.tidelog)
        )


def _matches(pattern: str, text: str) -> bool:
    return re.fullmatch(re.escape(pattern).replace(r"\*", ".*"), text) is not None


_LATE = "a timeout of 0 ms or less is our default; Kafka has timed out before it begins"
_BUG = "Kafka fails with UNKNOWN_SERVER_ERROR where the request is at fault; we say that it is"
_KEPT = "a setting of Kafka's that nodes do not have is kept, and has no default"
_LISTENERS = "listeners do not have separate settings; one that seems to protect them and does not is refused"
_TWICE = "a key of two values is refused; Kafka takes one of them"
_ONCE = "we answer once for what is named twice"
_EACH = "we answer for each that is named; Kafka once"
_TEXT = "Kafka gives no text with some of its errors; we say what is wrong"
_NO_TEXT = "Kafka's text of no error is empty, or NONE, in some APIs; ours is null"
_SHARE = "groups of KIP-932 are not served, nor is their topic one of ours"
_FEATURES = (
    "the features are ours, with levels of their own; a refusal names what is refused, Kafka's has the error alone"
)
_NO_FEATURE = "an update of no feature is refused; Kafka has done it"
_METRICS = "metrics of clients (KIP-714) are always served; Kafka needs a reporter that takes them"
_OTHER_GROUPS = "groups of KIP-932 and KIP-1071 are not served, nor settings of theirs"
_CHECKED = "nothing is created when a request is only checked, so that there is no id; Kafka makes one up"
_BOTH_WAYS = "a topic named by its id and by its name is refused under its name alone"
_FLUSH = "a log is put on the disk every 5 s (docs/storage.md); Kafka leaves that to the operating system"
_BROKER = "a broker that is not registered is named as that"
_BAD_NAME = "a name that cannot be one is a topic that there is not"
_ELECTED = "topics of which no partition needs an election are left out; Kafka names them without partitions"
_FORGOTTEN = "a group without members goes with its last offset; Kafka's goes when it is cleaned up next"
_DEAD = "a group that there is not is Dead, as in DescribeGroups; Kafka leaves its state empty"
_EXPRESSION = "no regular expression is null; Kafka's is empty"
_LEFT = "the assignment of a group that is left is that of its epoch; Kafka makes none without members"
_UNSERVED = "groups of KIP-932 and KIP-1071 are not served"
_LATER = "versions of KIP-1228 and later releases are served too, and the removal of voters"
_DUPLICATE = "a repeated batch has no time of its append; Kafka answers with the time of its records"
_NO_START = "an error has no start of the log"
_NO_AGE = (
    "an id without an open transaction has no age; Kafka counts it from 1970, or from the last transaction's start"
)
_KEEPS = "a prepared transaction can be kept (KIP-939); Kafka serves the request's version, but refuses the field"
_STUCK = (
    "a client that has not seen the downgrade to level 0 ends its transaction; Kafka cannot write its version then, and"
    " the transactional id is pending until the coordinator moves"
)
_NO_MARKERS = "a marker without partitions has an empty answer; Kafka has none"

_TIERS = "logs are not copied to other storage (KIP-405), and have no settings of it"
_FOREIGN = (
    "a follower that the leader does not know is told so by UNKNOWN_LEADER_EPOCH, with a leader epoch and without"
)
_NO_ABORTED = "an error has no list of aborted transactions; Kafka's is null or empty, as the place of the error has it"

_UNSERVED_KEYS = (*range(76, 80), *range(83, 93))
_NONE, _INVALID, _FAILED = ("NONE",), ("INVALID_REQUEST",), ("UNKNOWN_SERVER_ERROR",)

KNOWN = (
    Known(_TEXT, "*", "*error_message", (None, ""), ("<text>",)),
    Known(_NO_TEXT, "*", "*error_message", ("",), (None,)),
    Known(_NO_TEXT, "find*", "error_message", ("<text>",), (None,)),
    Known(_LATE, "create: late", "topics[late].error_code", ("REQUEST_TIMED_OUT",), ("NONE", "TOPIC_ALREADY_EXISTS")),
    Known(_LATE, "list: *", "config_resources[late]", (ABSENT,), (THERE,)),
    Known(_LATE, "grow: late", "results[told].error_code", ("REQUEST_TIMED_OUT",), _NONE),
    Known(_LATE, "reassign: late", "*error_code", ("REQUEST_TIMED_OUT",), _NONE),
    Known(
        _BUG,
        "scram: create with an empty password",
        "results[dave].error_code",
        {"UNKNOWN_SERVER_ERROR"},
        {"UNACCEPTABLE_CREDENTIAL"},
    ),
    Known(_BUG, "metadata: neither name nor id", "topics[].error_code", _FAILED, _INVALID),
    Known(_BUG, "offset: isolation level 3", "topics[part].partitions[0].error_code", _FAILED, _INVALID),
    Known(_BUG, "alter: operation 9", "responses[set].error_code", _FAILED, _INVALID),
    Known(_BUG, "grow: too many", "results[told].error_code", _FAILED, ("POLICY_VIOLATION",)),
    Known(_BUG, "alter: append to an unknown key", "responses[1].error_code", _FAILED, _INVALID),
    Known(_KEPT, "describe: unknown keys of a broker", "*.synonyms[sasl.kerberos*]#2", (THERE,), (ABSENT,)),
    Known(_LISTENERS, "alter: a listener's", "responses[1].error_code", _NONE, _INVALID),
    Known(_TWICE, "create: a key twice", "topics[x].error_code", _NONE, ("INVALID_CONFIG",)),
    Known(_TWICE, "create: a key twice", "topics[x].num_partitions", (1,), (-1,)),
    Known(_TWICE, "create: a key twice", "topics[x].replication_factor", (1,), (-1,)),
    Known(_ONCE, "describe group: twice", "groups[none]#2", (THERE,), (ABSENT,)),
    Known(_ONCE, "alter: a topic twice", "responses[set]#2", (THERE,), (ABSENT,)),
    Known(_EACH, "offset: a partition twice", "topics[part].partitions[1]#2", (ABSENT,), (THERE,)),
    Known(_SHARE, "metadata: the topic of share groups", "*.is_internal", (True,), (False,)),
    *(Known(_FEATURES, "version*: *", f"*_features[{name}.version]*") for name in ("metadata", "group")),
    *(Known(_FEATURES, "version*: *", f"supported_features[{name}.version]*") for name in ("kraft", "share")),
    Known(_FEATURES, "feature: *", "results[*]", (ABSENT,), (THERE,)),
    Known(_FEATURES, "version: *", "results[*]", (ABSENT,), (THERE,)),
    Known(_NO_TEXT, "version: *", "results[*].error_message", ("<text>",), (None,)),
    Known(_TWICE, "version: twice", "*error_code", _NONE, _INVALID),
    Known(_NO_FEATURE, "feature: none", "error_code", _NONE, _INVALID),
    Known(_OTHER_GROUPS, "describe: a group*", "results[group].configs[s*]", (THERE,), (ABSENT,)),
    Known(_OTHER_GROUPS, "alter: a share group", "responses[group].error_code", _NONE, ("INVALID_CONFIG",)),
    Known(_CHECKED, "create: *", "topics[*].topic_id", ("<made>",), ("<none>",)),
    Known(_BOTH_WAYS, "delete: one by name and by id", "responses[told].topic_id", ("told",), ("<none>",)),
    Known(_FLUSH, "describe: a topic*", "*.configs[flush.ms].value", ("9223372036854775807",), ("5000",)),
    Known(_BROKER, "alter: another broker", "responses[7].error_code", _INVALID, ("BROKER_ID_NOT_REGISTERED",)),
    Known(
        _BAD_NAME,
        "producers: a bad name",
        "*.error_code",
        ("INVALID_TOPIC_EXCEPTION",),
        ("UNKNOWN_TOPIC_OR_PARTITION",),
    ),
    Known(_ELECTED, "elect: all", "replica_election_results[*]", (THERE,), (ABSENT,)),
    Known(_FORGOTTEN, "forget: again", "error_code", _NONE, ("GROUP_ID_NOT_FOUND",)),
    Known(_FORGOTTEN, "forget: again", "topics[read]", (THERE,), (ABSENT,)),
    Known(_FORGOTTEN, "describe group", "groups[alone].error_code", _NONE, ("GROUP_ID_NOT_FOUND",)),
    Known(_FORGOTTEN, "describe group", "groups[alone].group_state", ("Empty",), ("Dead",)),
    Known(_FORGOTTEN, "describe group", "groups[alone].authorized_operations"),
    Known(_DEAD, "consumer: *", "groups[*].group_state", ("",), ("Dead",)),
    Known(_EXPRESSION, "consumer: described", "*.subscribed_topic_regex", ("",), (None,)),
    Known(_LEFT, "consumer: left empty", "groups[new].assignment_epoch", (1,), (2,)),
    *(Known(_UNSERVED, "versions: all", f"api_keys[{key}]", (THERE,), (ABSENT,)) for key in _UNSERVED_KEYS),
    *(Known(_METRICS, "versions: all", f"api_keys[{key}]", (ABSENT,), (THERE,)) for key in (71, 72)),
    *(Known(_LATER, "versions: all", f"api_keys[{key}].max_version") for key in (2, 27)),
    Known(_LATER, "versions: all", "api_keys[82]", (ABSENT,), (THERE,)),
    Known(_DUPLICATE, "txn *: writes again", "*.log_append_time_ms", (), (-1,)),
    Known(_NO_START, "txn *: writes out of order", "*.log_start_offset", (0,), (-1,)),
    Known(_NO_AGE, "txn listed: old", "transaction_states[*]", (THERE,), (ABSENT,)),
    Known(_NO_AGE, "txn listed: of any age", "transaction_states[*]", (THERE,), (ABSENT,)),
    Known(_NO_MARKERS, "txn marked: no topics", "markers[*]", (ABSENT,), (THERE,)),
    *(Known(_STUCK, f"version {level}: over the change, *", "*") for level in (0, 2)),
    Known(_KEEPS, "2pc kept: *", "error_code", ("UNSUPPORTED_VERSION",), ("NONE", "INVALID_TRANSACTION_TIMEOUT")),
    Known(_KEEPS, "2pc kept: *", "producer_*", (-1,)),
    Known(_BUG, "txn marked: with an epoch below 0", "*.error_code", _FAILED, _INVALID),
)
KNOWN_OF_CALLERS = (
    Known(_FLUSH, "*: authorization: create topics", "*.configs[flush.ms].value", ("9223372036854775807",), ("5000",)),
    *(
        Known(_TIERS, "*: authorization: create topics", f"*.configs[{prefix}.*]", (THERE,), (ABSENT,))
        for prefix in ("local", "remote")
    ),
    Known(_NO_TEXT, "*: authorization: find*", "error_message", ("<text>",), (None,)),
    Known(_DEAD, "*: authorization: describe consumer groups", "groups[*].group_state", ("",), ("Dead",)),
    Known(_FORGOTTEN, "*: authorization: describe groups", "groups[g-denied].group_state", ("Empty",), ("Dead",)),
    *(
        Known(_FORGOTTEN, f"*: authorization: {each}", f"{at}[g-denied].error_code", _NONE, ("GROUP_ID_NOT_FOUND",))
        for each, at in (("describe groups", "groups"), ("delete groups", "results"))
    ),
    Known(_FORGOTTEN, "*: list groups", "groups[g-denied]", (THERE,), (ABSENT,)),
    Known(_FEATURES, "*: authorization of the cluster: features", "results[x]", (ABSENT,), (THERE,)),
    Known(_NO_ABORTED, "*: fetch*", "responses[*].partitions[0].aborted_transactions", (THERE,), (None,)),
    Known(
        _FOREIGN,
        "*: fetch as a follower",
        "responses[*].partitions[0].error_code",
        ("NOT_LEADER_OR_FOLLOWER",),
        ("UNKNOWN_LEADER_EPOCH",),
    ),
)
"""Differences of the requests of callers with every kind of right."""


def is_known(difference: Difference) -> bool:
    """Return whether a difference is listed."""
    return any(known.covers(difference) for known in (*KNOWN, *KNOWN_OF_CALLERS))
