"""Advice for errors at the command line, by code. Pure."""

from __future__ import annotations

from tidelog_foundation.errors import ErrorCode

_CODES: dict[ErrorCode, str] = {
    ErrorCode._ALL_BROKERS_DOWN: "start a cluster on this machine with tidelog dev, or name another "
    "with --bootstrap-servers, TIDELOG_BOOTSTRAP_SERVERS or a profile",
    ErrorCode._TIMED_OUT: "wait longer with --timeout; tidelog cluster describe shows the state of the nodes",
    ErrorCode._RESOLVE: "check the addresses in --bootstrap-servers, TIDELOG_BOOTSTRAP_SERVERS or the profile",
    ErrorCode.REQUEST_TIMED_OUT: "wait longer with --timeout; the change may have been made",
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION: "tidelog topic list shows the topics; tidelog topic create creates one",
    ErrorCode.TOPIC_ALREADY_EXISTS: "--if-not-exists accepts it as it is",
    ErrorCode.INVALID_REPLICATION_FACTOR: "tidelog cluster describe shows the nodes",
    ErrorCode.INVALID_PARTITIONS: "tidelog topic describe shows the present number, which can only grow",
    ErrorCode.LEADER_NOT_AVAILABLE: "tidelog topic describe --unavailable shows partitions without a leader",
    ErrorCode.NOT_ENOUGH_REPLICAS: "tidelog topic describe --under-min-isr shows the partitions that lack replicas",
    ErrorCode.BROKER_NOT_AVAILABLE: "tidelog cluster describe shows the nodes",
    ErrorCode.BROKER_ID_NOT_REGISTERED: "tidelog cluster describe shows the nodes",
    ErrorCode.OFFSET_OUT_OF_RANGE: "tidelog topic offsets TOPIC shows the start and end of its partitions",
    ErrorCode.MESSAGE_TOO_LARGE: "raise max.message.bytes of the topic: tidelog topic alter TOPIC --config "
    "max.message.bytes=N",
    ErrorCode.REASSIGNMENT_IN_PROGRESS: "tidelog partition reassign --list shows what is under way",
    ErrorCode.GROUP_ID_NOT_FOUND: "tidelog group list shows the groups",
    ErrorCode.NON_EMPTY_GROUP: "stop its members first: tidelog group describe GROUP --members shows them",
    ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC: "stop the members that read the topic first: tidelog group describe GROUP "
    "--members shows them",
    ErrorCode.TRANSACTIONAL_ID_NOT_FOUND: "tidelog transaction list shows the transactional ids",
    ErrorCode.COORDINATOR_NOT_AVAILABLE: "tidelog topic describe __consumer_offsets __transaction_state shows whether "
    "their partitions have leaders",
    ErrorCode._AUTHENTICATION: "check the user and the password: tidelog profile show shows the settings of a profile",
    ErrorCode.TOPIC_AUTHORIZATION_FAILED: "an administrator allows it with tidelog acl create",
    ErrorCode.GROUP_AUTHORIZATION_FAILED: "an administrator allows it with tidelog acl create",
    ErrorCode.CLUSTER_AUTHORIZATION_FAILED: "an administrator allows it with tidelog acl create --cluster",
    ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED: "an administrator allows it with tidelog acl create",
    ErrorCode.DELEGATION_TOKEN_AUTH_DISABLED: "set delegation.token.secret.key on all nodes",
    ErrorCode.SECURITY_DISABLED: "set authorizer.class.name on all nodes and controllers",
    ErrorCode.LOG_DIR_NOT_FOUND: "tidelog log-dirs describe shows the log directories",
}


def hint_for(code: ErrorCode) -> str | None:
    """Return advice for a user of the command line about an error; None if there is none."""
    return _CODES.get(code)
