"""All of Tidelog's errors, one row each, and the exceptions that carry them.

::

    TidelogError (= KafkaException)     args[0] is a KafkaError
    ├── ClosedError                     _DESTROY; a RuntimeError too, as in confluent-kafka
    └── RetriableError                  the same request may succeed later
        └── RefreshMetadataError        ... after a metadata refresh

Codes, names and texts are Kafka's (protocol guide, "Error Codes"). Codes below -1 are librdkafka's, for errors on the
client's side.
"""

from __future__ import annotations

import enum
import functools
from typing import Any, Final, Self

from tidelog_foundation.dataclass import dataclass


@dataclass(frozen=True, slots=True)
class _Row:
    code: int
    text: str
    retriable: bool = False
    refresh_metadata: bool = False
    grpc_status: str = "FAILED_PRECONDITION"


def _retry(code: int, text: str, status: str = "UNAVAILABLE") -> _Row:
    return _Row(code, text, retriable=True, grpc_status=status)


def _refresh(code: int, text: str, status: str = "UNAVAILABLE") -> _Row:
    return _Row(code, text, retriable=True, refresh_metadata=True, grpc_status=status)


def _bad(code: int, text: str) -> _Row:
    return _Row(code, text, grpc_status="INVALID_ARGUMENT")


def _denied(code: int, text: str) -> _Row:
    return _Row(code, text, grpc_status="PERMISSION_DENIED")


class ErrorCode(enum.Enum):
    """One row per error: Kafka's name, code and text, whether to retry, and the gRPC status."""

    # Errors of the client's side (librdkafka's names and codes, as in confluent-kafka).
    _BAD_MSG = _Row(-199, "Bad message format")
    _BAD_COMPRESSION = _Row(-198, "Compressed data is invalid")
    _DESTROY = _Row(-197, "The client is closed")
    _FAIL = _Row(-196, "Communication failure")
    _CRIT_SYS_RESOURCE = _Row(-194, "The system lacks a resource")
    _TRANSPORT = _Row(-195, "Broker transport failure", retriable=True, refresh_metadata=True)
    _RESOLVE = _Row(-193, "Host resolution failure", retriable=True)
    _MSG_TIMED_OUT = _Row(-192, "Message timed out")
    _PARTITION_EOF = _Row(-191, "No more messages")
    _UNKNOWN_PARTITION = _Row(-190, "Unknown partition")
    _FS = _Row(-189, "A file cannot be used")
    _UNKNOWN_TOPIC = _Row(-188, "Unknown topic")
    _ALL_BROKERS_DOWN = _Row(-187, "All broker connections are down")
    _INVALID_ARG = _Row(-186, "Invalid argument or configuration")
    _TIMED_OUT = _Row(-185, "Timed out")
    _QUEUE_FULL = _Row(-184, "Queue full")
    _ISR_INSUFF = _Row(-183, "Too few in-sync replicas")
    _NODE_UPDATE = _Row(-182, "A node has changed")
    _SSL = _Row(-181, "TLS error", retriable=True, refresh_metadata=True)
    _WAIT_COORD = _Row(-180, "Waiting for the group's coordinator")
    _UNKNOWN_GROUP = _Row(-179, "Unknown group")
    _IN_PROGRESS = _Row(-178, "The operation is in progress")
    _PREV_IN_PROGRESS = _Row(-177, "An earlier operation is in progress")
    _EXISTING_SUBSCRIPTION = _Row(-176, "A subscription conflicts")
    _ASSIGN_PARTITIONS = _Row(-175, "Partitions are assigned")
    _REVOKE_PARTITIONS = _Row(-174, "Partitions are revoked")
    _CONFLICT = _Row(-173, "Conflicting use")
    _STATE = _Row(-172, "Erroneous state")
    _UNKNOWN_PROTOCOL = _Row(-171, "Unknown protocol")
    _NOT_IMPLEMENTED = _Row(-170, "Not implemented")
    _AUTHENTICATION = _Row(-169, "Authentication failed")
    _NO_OFFSET = _Row(-168, "No offset stored")
    _OUTDATED = _Row(-167, "Outdated")
    _TIMED_OUT_QUEUE = _Row(-166, "Timed out in a queue")
    _UNSUPPORTED_FEATURE = _Row(-165, "The node lacks a feature")
    _WAIT_CACHE = _Row(-164, "Waiting for metadata")
    _INTR = _Row(-163, "Interrupted")
    _KEY_SERIALIZATION = _Row(-162, "Key serialization error")
    _VALUE_SERIALIZATION = _Row(-161, "Value serialization error")
    _KEY_DESERIALIZATION = _Row(-160, "Key deserialization error")
    _VALUE_DESERIALIZATION = _Row(-159, "Value deserialization error")
    _PARTIAL = _Row(-158, "A part of the answer is missing")
    _READ_ONLY = _Row(-157, "The value is read-only")
    _NOENT = _Row(-156, "There is no such entry")
    _UNDERFLOW = _Row(-155, "The data ends too early")
    _INVALID_TYPE = _Row(-154, "The type is invalid")
    _RETRY = _Row(-153, "Try again")
    _PURGE_QUEUE = _Row(-152, "Purged in queue")
    _PURGE_INFLIGHT = _Row(-151, "Purged in flight")
    _FATAL = _Row(-150, "Fatal error")
    _INCONSISTENT = _Row(-149, "The state is inconsistent")
    _GAPLESS_GUARANTEE = _Row(-148, "Continuing would leave a gap")
    _MAX_POLL_EXCEEDED = _Row(-147, "max.poll.interval.ms passed without a poll()")
    _UNKNOWN_BROKER = _Row(-146, "Unknown node")
    _NOT_CONFIGURED = _Row(-145, "Not configured")
    _FENCED = _Row(-144, "Another client has taken this one's place")
    _APPLICATION = _Row(-143, "The application's own code failed")
    _ASSIGNMENT_LOST = _Row(-142, "The group's assignment was lost")
    _NOOP = _Row(-141, "There was nothing to do")
    _AUTO_OFFSET_RESET = _Row(-140, "No offset to reset to")
    _LOG_TRUNCATION = _Row(-139, "The log was truncated below the position")
    _INVALID_DIFFERENT_RECORD = _Row(-138, "Another record of the batch is invalid")
    _DESTROY_BROKER = _Row(-137, "The connection to a node was given up")
    # Errors of the protocol.
    UNKNOWN_SERVER_ERROR = _Row(-1, "Unexpected server error", grpc_status="INTERNAL")
    NONE = _Row(0, "Success", grpc_status="OK")
    OFFSET_OUT_OF_RANGE = _Row(1, "The offset is outside the partition's log", grpc_status="OUT_OF_RANGE")
    CORRUPT_MESSAGE = _Row(2, "The record batch is corrupt", retriable=True, grpc_status="INVALID_ARGUMENT")
    UNKNOWN_TOPIC_OR_PARTITION = _refresh(3, "There is no such topic or partition", "NOT_FOUND")
    INVALID_FETCH_SIZE = _bad(4, "The fetch size is invalid")
    LEADER_NOT_AVAILABLE = _refresh(5, "The partition has no leader at the moment")
    NOT_LEADER_OR_FOLLOWER = _refresh(6, "The node does not lead or hold the partition")
    REQUEST_TIMED_OUT = _retry(7, "The request timed out", "DEADLINE_EXCEEDED")
    BROKER_NOT_AVAILABLE = _Row(8, "The node is not available", grpc_status="UNAVAILABLE")
    REPLICA_NOT_AVAILABLE = _refresh(9, "The replica is not available")
    MESSAGE_TOO_LARGE = _bad(10, "The record batch is larger than max.message.bytes")
    STALE_CONTROLLER_EPOCH = _Row(11, "The controller's epoch is stale")
    OFFSET_METADATA_TOO_LARGE = _bad(12, "The offset's metadata is too large")
    NETWORK_EXCEPTION = _refresh(13, "The node disconnected before it answered")
    COORDINATOR_LOAD_IN_PROGRESS = _retry(14, "The coordinator is loading")
    COORDINATOR_NOT_AVAILABLE = _retry(15, "The coordinator is not available")
    NOT_COORDINATOR = _retry(16, "The node is not the coordinator")
    INVALID_TOPIC_EXCEPTION = _bad(17, "The topic name is invalid")
    RECORD_LIST_TOO_LARGE = _bad(18, "The record batch is larger than segment.bytes")
    NOT_ENOUGH_REPLICAS = _retry(19, "Fewer in-sync replicas than min.insync.replicas")
    NOT_ENOUGH_REPLICAS_AFTER_APPEND = _retry(20, "Written, but to fewer in-sync replicas than min.insync.replicas")
    INVALID_REQUIRED_ACKS = _bad(21, "Invalid value of acks")
    ILLEGAL_GENERATION = _Row(22, "The group's generation is different")
    INCONSISTENT_GROUP_PROTOCOL = _bad(23, "The group's protocol is different")
    INVALID_GROUP_ID = _bad(24, "Invalid group id")
    UNKNOWN_MEMBER_ID = _Row(25, "The coordinator does not know the member")
    INVALID_SESSION_TIMEOUT = _bad(26, "The session timeout is out of bounds")
    REBALANCE_IN_PROGRESS = _Row(27, "The group is rebalancing")
    INVALID_COMMIT_OFFSET_SIZE = _bad(28, "The committed offsets are too large")
    TOPIC_AUTHORIZATION_FAILED = _denied(29, "Not authorized for the topic")
    GROUP_AUTHORIZATION_FAILED = _denied(30, "Not authorized for the group")
    CLUSTER_AUTHORIZATION_FAILED = _denied(31, "Not authorized for the cluster")
    INVALID_TIMESTAMP = _bad(32, "The record's timestamp is out of range")
    UNSUPPORTED_SASL_MECHANISM = _bad(33, "The SASL mechanism is not supported")
    ILLEGAL_SASL_STATE = _Row(34, "The request is not valid in this SASL state", grpc_status="UNAUTHENTICATED")
    UNSUPPORTED_VERSION = _Row(35, "The API version is not supported", grpc_status="UNIMPLEMENTED")
    TOPIC_ALREADY_EXISTS = _Row(36, "A topic of that name exists", grpc_status="ALREADY_EXISTS")
    INVALID_PARTITIONS = _bad(37, "Invalid number of partitions")
    INVALID_REPLICATION_FACTOR = _bad(38, "Invalid replication factor")
    INVALID_REPLICA_ASSIGNMENT = _bad(39, "Invalid replica assignment")
    INVALID_CONFIG = _bad(40, "Invalid configuration")
    NOT_CONTROLLER = _refresh(41, "The controller does not lead the quorum")
    INVALID_REQUEST = _bad(42, "Invalid request")
    UNSUPPORTED_FOR_MESSAGE_FORMAT = _bad(43, "Not supported by the message format")
    POLICY_VIOLATION = _bad(44, "A policy forbids the request")
    OUT_OF_ORDER_SEQUENCE_NUMBER = _Row(45, "The producer's sequence number is out of order")
    DUPLICATE_SEQUENCE_NUMBER = _Row(46, "The producer's sequence number was seen before")
    INVALID_PRODUCER_EPOCH = _Row(47, "The producer's epoch is old")
    INVALID_TXN_STATE = _Row(48, "The transaction is in a different state")
    INVALID_PRODUCER_ID_MAPPING = _Row(49, "The producer id does not belong to the transactional id")
    INVALID_TRANSACTION_TIMEOUT = _bad(50, "The transaction timeout is out of bounds")
    CONCURRENT_TRANSACTIONS = _retry(51, "The transaction is being completed")
    TRANSACTION_COORDINATOR_FENCED = _Row(52, "A newer transaction coordinator has taken over")
    TRANSACTIONAL_ID_AUTHORIZATION_FAILED = _denied(53, "Not authorized for the transactional id")
    SECURITY_DISABLED = _Row(54, "Security is disabled", grpc_status="UNIMPLEMENTED")
    OPERATION_NOT_ATTEMPTED = _Row(55, "The operation was not attempted")
    KAFKA_STORAGE_ERROR = _refresh(56, "A disk error while accessing the log")
    LOG_DIR_NOT_FOUND = _Row(57, "The log directory does not exist", grpc_status="NOT_FOUND")
    SASL_AUTHENTICATION_FAILED = _Row(58, "SASL authentication failed", grpc_status="UNAUTHENTICATED")
    UNKNOWN_PRODUCER_ID = _Row(59, "The node does not know the producer id")
    REASSIGNMENT_IN_PROGRESS = _Row(60, "A reassignment is in progress")
    DELEGATION_TOKEN_AUTH_DISABLED = _Row(61, "Delegation tokens are disabled", grpc_status="UNIMPLEMENTED")
    DELEGATION_TOKEN_NOT_FOUND = _Row(62, "There is no such delegation token", grpc_status="NOT_FOUND")
    DELEGATION_TOKEN_OWNER_MISMATCH = _Row(63, "The delegation token belongs to another principal")
    DELEGATION_TOKEN_REQUEST_NOT_ALLOWED = _Row(64, "Delegation tokens cannot be requested on this connection")
    DELEGATION_TOKEN_AUTHORIZATION_FAILED = _denied(65, "Not authorized for the delegation token")
    DELEGATION_TOKEN_EXPIRED = _Row(66, "The delegation token has expired")
    INVALID_PRINCIPAL_TYPE = _bad(67, "The type of the principal is not supported")
    NON_EMPTY_GROUP = _Row(68, "The group is not empty")
    GROUP_ID_NOT_FOUND = _Row(69, "There is no such group", grpc_status="NOT_FOUND")
    FETCH_SESSION_ID_NOT_FOUND = _retry(70, "There is no such fetch session")
    INVALID_FETCH_SESSION_EPOCH = _retry(71, "The fetch session's epoch is different")
    LISTENER_NOT_FOUND = _refresh(72, "The leader has no such listener")
    TOPIC_DELETION_DISABLED = _Row(73, "delete.topic.enable is false")
    FENCED_LEADER_EPOCH = _refresh(74, "The leader epoch is older than the node's")
    UNKNOWN_LEADER_EPOCH = _retry(75, "The leader epoch is newer than the node's")
    UNSUPPORTED_COMPRESSION_TYPE = _bad(76, "The compression type is not supported")
    STALE_BROKER_EPOCH = _Row(77, "The broker's epoch is old")
    OFFSET_NOT_AVAILABLE = _retry(78, "The leader's high watermark has not reached its epoch's start")
    MEMBER_ID_REQUIRED = _Row(79, "The member must join again with the given id")
    PREFERRED_LEADER_NOT_AVAILABLE = _refresh(80, "The preferred leader is not available")
    GROUP_MAX_SIZE_REACHED = _Row(81, "The group is full", grpc_status="RESOURCE_EXHAUSTED")
    FENCED_INSTANCE_ID = _Row(82, "Another member has taken the instance id")
    ELIGIBLE_LEADERS_NOT_AVAILABLE = _refresh(83, "No eligible leader is available")
    ELECTION_NOT_NEEDED = _refresh(84, "The partition already has that leader")
    NO_REASSIGNMENT_IN_PROGRESS = _Row(85, "No reassignment is in progress")
    GROUP_SUBSCRIBED_TO_TOPIC = _Row(86, "A member of the group is subscribed to the topic")
    INVALID_RECORD = _bad(87, "The record is invalid")
    UNSTABLE_OFFSET_COMMIT = _retry(88, "A transaction on the offsets is pending")
    THROTTLING_QUOTA_EXCEEDED = _retry(89, "The quota is exceeded", "RESOURCE_EXHAUSTED")
    PRODUCER_FENCED = _Row(90, "A newer producer has the same transactional id")
    RESOURCE_NOT_FOUND = _Row(91, "There is no such resource", grpc_status="NOT_FOUND")
    DUPLICATE_RESOURCE = _bad(92, "The resource is named twice")
    UNACCEPTABLE_CREDENTIAL = _bad(93, "The credential is not acceptable")
    INCONSISTENT_VOTER_SET = _Row(94, "The receiver is not the voter that was meant")
    INVALID_UPDATE_VERSION = _Row(95, "The partition's epoch is another")
    FEATURE_UPDATE_FAILED = _Row(96, "The feature was not updated")
    PRINCIPAL_DESERIALIZATION_FAILURE = _Row(97, "The forwarded principal cannot be read")
    SNAPSHOT_NOT_FOUND = _Row(98, "There is no such snapshot", grpc_status="NOT_FOUND")
    UNKNOWN_TOPIC_ID = _refresh(100, "There is no topic of that id", "NOT_FOUND")
    DUPLICATE_BROKER_REGISTRATION = _Row(101, "Another live node has that broker id", grpc_status="ALREADY_EXISTS")
    BROKER_ID_NOT_REGISTERED = _Row(102, "The broker id is not registered", grpc_status="NOT_FOUND")
    INCONSISTENT_TOPIC_ID = _refresh(103, "The topic has another id")
    INCONSISTENT_CLUSTER_ID = _Row(104, "The cluster has another id")
    TRANSACTIONAL_ID_NOT_FOUND = _Row(105, "There is no such transactional id", grpc_status="NOT_FOUND")
    FETCH_SESSION_TOPIC_ID_ERROR = _retry(106, "The fetch session names its topics otherwise, by id or by name")
    INELIGIBLE_REPLICA = _Row(107, "The replica may not join the ISR")
    NEW_LEADER_ELECTED = _Row(108, "The change elected another leader")
    FENCED_MEMBER_EPOCH = _Row(110, "The member's epoch is not the coordinator's: join again")
    UNRELEASED_INSTANCE_ID = _Row(111, "The instance id is another live member's")
    UNSUPPORTED_ASSIGNOR = _bad(112, "The coordinator does not have the assignor")
    STALE_MEMBER_EPOCH = _Row(113, "The member's epoch is old")
    MISMATCHED_ENDPOINT_TYPE = _Row(114, "The request is for an endpoint of another type")
    UNSUPPORTED_ENDPOINT_TYPE = _Row(115, "There is no endpoint of that type")
    UNKNOWN_CONTROLLER_ID = _Row(116, "The controller id is not known")
    UNKNOWN_SUBSCRIPTION_ID = _Row(117, "The telemetry subscription is unknown or old")
    TELEMETRY_TOO_LARGE = _bad(118, "The telemetry is too large")
    INVALID_REGISTRATION = _bad(119, "The registration is invalid")
    TRANSACTION_ABORTABLE = _Row(120, "The transaction failed and can be aborted")
    INVALID_RECORD_STATE = _Row(121, "The record's state does not allow the acknowledgement")
    SHARE_SESSION_NOT_FOUND = _retry(122, "There is no such share session")
    INVALID_SHARE_SESSION_EPOCH = _retry(123, "The share session's epoch is another")
    FENCED_STATE_EPOCH = _Row(124, "The share group's state epoch is another")
    INVALID_VOTER_KEY = _bad(125, "The voter's id or directory id is not the receiver's")
    DUPLICATE_VOTER = _Row(126, "The voter is in the voter set", grpc_status="ALREADY_EXISTS")
    VOTER_NOT_FOUND = _Row(127, "The voter is not in the voter set", grpc_status="NOT_FOUND")
    INVALID_REGULAR_EXPRESSION = _bad(128, "The regular expression is invalid")
    REBOOTSTRAP_REQUIRED = _Row(129, "The client's metadata is stale: bootstrap again")
    STREAMS_INVALID_TOPOLOGY = _bad(130, "The topology is invalid")
    STREAMS_INVALID_TOPOLOGY_EPOCH = _bad(131, "The topology's epoch is invalid")
    STREAMS_TOPOLOGY_FENCED = _Row(132, "The topology's epoch is old")
    SHARE_SESSION_LIMIT_REACHED = _retry(133, "There are too many share sessions", "RESOURCE_EXHAUSTED")

    def __init__(self, row: _Row) -> None:
        self.code: Final = row.code
        """Kafka's number."""
        self.text: Final = row.text
        """A text that fits every occurrence."""
        self.retriable: Final = row.retriable
        """True if the same request may succeed later."""
        self.refresh_metadata: Final = row.refresh_metadata
        """True if a client should refresh its metadata before a retry."""
        self.grpc_status: Final = row.grpc_status
        """The name of the status of a gRPC call that failed as a whole with this error."""

    @classmethod
    def of(cls, code: int) -> ErrorCode:
        """Return the row with a number; UNKNOWN_SERVER_ERROR for an unknown number."""
        return _BY_CODE.get(code, cls.UNKNOWN_SERVER_ERROR)


_BY_CODE = {row.code: row for row in ErrorCode}
UNREACHABLE = frozenset((ErrorCode._TRANSPORT, ErrorCode._SSL))
"""The errors of a connection that could not be opened, or was lost."""
INSECURE = frozenset((ErrorCode._SSL, ErrorCode._AUTHENTICATION))
"""The errors of TLS and of a refused login. As in librdkafka, ``error_cb`` gets them at once and a client retries."""
OUTAGES = frozenset((ErrorCode._ALL_BROKERS_DOWN, ErrorCode._TIMED_OUT, ErrorCode._RESOLVE)) | INSECURE
"""The errors of a client that no node answered in time, or let in. A later call may succeed."""

_LIBRDKAFKA_NAMES = {
    "STALE_CTRL_EPOCH": ErrorCode.STALE_CONTROLLER_EPOCH,
    "UNKNOWN": ErrorCode.UNKNOWN_SERVER_ERROR,
    "NO_ERROR": ErrorCode.NONE,
    "INVALID_MSG": ErrorCode.CORRUPT_MESSAGE,
    "UNKNOWN_TOPIC_OR_PART": ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    "INVALID_MSG_SIZE": ErrorCode.INVALID_FETCH_SIZE,
    "NOT_LEADER_FOR_PARTITION": ErrorCode.NOT_LEADER_OR_FOLLOWER,
    "MSG_SIZE_TOO_LARGE": ErrorCode.MESSAGE_TOO_LARGE,
    "TOPIC_EXCEPTION": ErrorCode.INVALID_TOPIC_EXCEPTION,
}


@functools.total_ordering
class KafkaError:
    """An error as a value: confluent-kafka's class of the same name.

    It compares equal to its number, so ``error.code() == KafkaError._PARTITION_EOF`` and ``error ==
    KafkaError._PARTITION_EOF`` both work. Every row of :class:`ErrorCode` is a class attribute with its number, also
    under librdkafka's own spelling (``UNKNOWN_TOPIC_OR_PART``).
    """

    __slots__ = ("_fatal", "_message", "_retriable", "_row", "_txn_requires_abort")

    def __init__(
        self,
        error: ErrorCode | int,
        reason: str | None = None,
        fatal: bool = False,
        retriable: bool | None = None,
        txn_requires_abort: bool = False,
    ) -> None:
        """Create an error. ``retriable`` None means that of the row."""
        self._row = error if isinstance(error, ErrorCode) else ErrorCode.of(error)
        self._message = reason or self._row.text
        self._fatal = fatal
        self._retriable = self._row.retriable if retriable is None else retriable
        self._txn_requires_abort = txn_requires_abort

    def code(self) -> int:
        """Return Kafka's number."""
        return self._row.code

    def name(self) -> str:
        """Return Kafka's name, e.g. ``UNKNOWN_TOPIC_OR_PARTITION``."""
        return self._row.name

    def str(self) -> str:
        """Return the text, which names the values."""
        return self._message

    def retriable(self) -> bool:
        """Return True if the same request may succeed later."""
        return self._retriable

    def fatal(self) -> bool:
        """Return True if the client can no longer be used."""
        return self._fatal

    def txn_requires_abort(self) -> bool:
        """Return True if the producer can go on after it has aborted its transaction."""
        return self._txn_requires_abort

    def error_code(self) -> ErrorCode:
        """Return the error's row in the table."""
        return self._row

    def __eq__(self, other: object) -> bool:
        if isinstance(other, KafkaError):
            return self.code() == other.code()
        return isinstance(other, int) and self.code() == other

    def __lt__(self, other: object) -> bool:
        if not isinstance(other, KafkaError | int):
            return NotImplemented
        return self.code() < (other if isinstance(other, int) else other.code())

    def __hash__(self) -> int:
        return hash(self.code())

    def __repr__(self) -> str:  # type: ignore[valid-type]  # the method str shadows the type here
        return f'KafkaError{{code={self.name()},val={self.code()},str="{self._message}"}}'

    def __str__(self) -> str:  # type: ignore[valid-type]
        return repr(self)

    def __reduce__(self) -> tuple[Any, ...]:
        return (KafkaError, (self.code(), self._message, self._fatal, self._retriable, self._txn_requires_abort))


for _row in ErrorCode:
    setattr(KafkaError, _row.name, _row.code)
for _name, _row in _LIBRDKAFKA_NAMES.items():
    setattr(KafkaError, _name, _row.code)


class TidelogError(Exception):
    """The root of all of Tidelog's exceptions; ``args[0]`` is a :class:`KafkaError`.

    Create one with :func:`error_for`, which chooses the subclass, and catch the subclass that you can handle.
    """

    def __init__(self, error: KafkaError | ErrorCode | int, message: str | None = None) -> None:
        super().__init__(error if isinstance(error, KafkaError) else KafkaError(error, message))

    @property
    def error(self) -> KafkaError:
        """The error as a value."""
        return self.args[0]  # type: ignore[no-any-return]

    @property
    def code(self) -> ErrorCode:
        """The error's row in the table."""
        return self.error.error_code()

    @property
    def message(self) -> str:
        """The text, which names the values."""
        return self.error.str()

    def detached(self) -> Self:
        """Return the error without traceback, cause and context, so that storing it keeps no frame alive."""
        self.__cause__ = self.__context__ = None
        return self.with_traceback(None)

    def __str__(self) -> str:
        return f"{self.code.name}: {self.message}"

    def __reduce__(self) -> tuple[Any, ...]:
        return (type(self), (self.error,))


class ClosedError(TidelogError, RuntimeError):
    """A call on a closed client (_DESTROY)."""


class RetriableError(TidelogError):
    """An error after which the same request may succeed later."""


class RefreshMetadataError(RetriableError):
    """An error after which the same request may succeed with fresh metadata."""


class CorruptRecordError(RetriableError):
    """A record batch with invalid bytes (CORRUPT_MESSAGE)."""

    def __init__(self, error: KafkaError | str) -> None:
        super().__init__(error if isinstance(error, KafkaError) else KafkaError(ErrorCode.CORRUPT_MESSAGE, error))


class ConfigError(TidelogError):
    """An invalid configuration (INVALID_CONFIG). Its text names the key, the value and the limit."""

    def __init__(self, error: KafkaError | str) -> None:
        super().__init__(error if isinstance(error, KafkaError) else KafkaError(ErrorCode.INVALID_CONFIG, error))


KafkaException = TidelogError


def error_for(code: ErrorCode | int, message: str | None = None) -> TidelogError:
    """Return the exception for a code; its class tells if a retry or a metadata refresh helps."""
    row = code if isinstance(code, ErrorCode) else ErrorCode.of(code)
    error = KafkaError(row, message)
    if row is ErrorCode.CORRUPT_MESSAGE:
        return CorruptRecordError(error)
    if row is ErrorCode.INVALID_CONFIG:
        return ConfigError(error)
    if row is ErrorCode._DESTROY:
        return ClosedError(error)
    if row.refresh_metadata:
        return RefreshMetadataError(error)
    if row.retriable:
        return RetriableError(error)
    return TidelogError(error)
