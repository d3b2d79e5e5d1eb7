"""What to do about an error: a clause for each code where there is something to say. Pure."""

from __future__ import annotations

from tidelog.errors import ErrorCode

_CODES: dict[ErrorCode, str] = {
    ErrorCode._ALL_BROKERS_DOWN: "tidelog dev starts a cluster on this machine; --bootstrap-servers, "
    "TIDELOG_BOOTSTRAP_SERVERS or a profile names another",
    ErrorCode._TIMED_OUT: "--timeout waits longer; tidelog cluster describe shows which nodes serve",
    ErrorCode._RESOLVE: "see the addresses in --bootstrap-servers, TIDELOG_BOOTSTRAP_SERVERS or the profile",
    ErrorCode.REQUEST_TIMED_OUT: "--timeout waits longer; it may be done all the same",
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION: "tidelog topic list shows the topics, tidelog topic create makes one",
    ErrorCode.TOPIC_ALREADY_EXISTS: "--if-not-exists takes it as it is",
    ErrorCode.INVALID_REPLICATION_FACTOR: "tidelog cluster describe shows the nodes that are there",
    ErrorCode.INVALID_PARTITIONS: "tidelog topic describe shows how many there are; they cannot become fewer",
    ErrorCode.LEADER_NOT_AVAILABLE: "tidelog topic describe --unavailable shows partitions without a leader",
    ErrorCode.NOT_ENOUGH_REPLICAS: "tidelog topic describe --under-min-isr shows where replicas are missing",
    ErrorCode.BROKER_NOT_AVAILABLE: "tidelog cluster describe shows the nodes",
    ErrorCode.BROKER_ID_NOT_REGISTERED: "tidelog cluster describe shows the nodes",
    ErrorCode.OFFSET_OUT_OF_RANGE: "tidelog topic offsets TOPIC shows where its partitions begin and end",
    ErrorCode.MESSAGE_TOO_LARGE: "raise max.message.bytes of the topic: tidelog topic alter TOPIC --config "
    "max.message.bytes=N",
    ErrorCode.REASSIGNMENT_IN_PROGRESS: "tidelog partition reassign --list shows what is under way",
    ErrorCode.GROUP_ID_NOT_FOUND: "tidelog group list shows the groups",
    ErrorCode.NON_EMPTY_GROUP: "stop its members first: tidelog group describe GROUP --members shows them",
    ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC: "stop the members that read the topic first: tidelog group describe GROUP "
    "--members shows them",
    ErrorCode.COORDINATOR_NOT_AVAILABLE: "tidelog topic describe __consumer_offsets shows whether its partitions have "
    "leaders",
    ErrorCode.LOG_DIR_NOT_FOUND: "tidelog log-dirs describe shows the log directories",
}


def hint_for(code: ErrorCode) -> str | None:
    """Return what somebody at a command line can do about an error, None where the error says it all."""
    return _CODES.get(code)
