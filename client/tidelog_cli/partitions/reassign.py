"""The actions of ``tidelog partition reassign``, one function each; the steps are those of Kafka's own tool."""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from operator import itemgetter

import typer

from tidelog.admin import AdminClient, NewPartitionReassignment, TopicPartitionReplica
from tidelog.message import TopicPartition
from tidelog_cli.options.connection import Session
from tidelog_cli.output.printing import fail, print_json, print_table, settle
from tidelog_cli.partitions import throttles
from tidelog_cli.partitions.assignments import Assignment, ReassignmentFile, to_document, to_json
from tidelog_cli.partitions.proposal import propose
from tidelog_foundation.errors import ErrorCode, TidelogError, error_for
from tidelog_foundation.waiting import ReportedBlock

_POLL_S = 0.5
_LOG_DIR_POLL_S = 0.1
_METADATA_S = 1.0
_NOT_YET = (ErrorCode.REPLICA_NOT_AVAILABLE, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.NOT_LEADER_OR_FOLLOWER)

COMPLETED, UNDER_WAY, NOT_AS_ASKED, UNKNOWN = "completed", "in progress", "other replicas", "unknown"


@dataclass(frozen=True, slots=True)
class Limits:
    """Limits in bytes per second, None for no limit: between nodes, and between the log directories of a node."""

    between_nodes: int | None = None
    between_log_dirs: int | None = None


@dataclass(frozen=True, slots=True)
class PartitionStatus:
    """The progress of a partition: its current replicas, None if there is no such partition."""

    key: TopicPartition
    target: tuple[int, ...]
    replicas: tuple[int, ...] | None
    is_under_way: bool

    @property
    def text(self) -> str:
        """The status in a word or two."""
        if self.is_under_way:
            return UNDER_WAY
        if self.replicas is None:
            return UNKNOWN
        return COMPLETED if self.replicas == self.target else NOT_AS_ASKED


def generate_assignment(
    session: Session,
    admin: AdminClient,
    topics: Sequence[str],
    brokers: Sequence[int],
    replication_factor: int | None,
    *,
    rack_aware: bool,
) -> None:
    """Print the current assignment of ``topics`` and a proposed one on ``brokers``; change nothing.

    Raises:
        TidelogError: no such topic or node; only some of the nodes have a rack.
    """
    current = _current(admin, topics, session.timeout_s)
    racks = _racks(admin, brokers, rack_aware, session.timeout_s)
    indexes = {topic: [key.partition for key in current if key.topic == topic] for topic in sorted(topics)}
    factors = {
        topic: replication_factor or len(current[TopicPartition(topic, min(indexes[topic]))]) for topic in indexes
    }
    proposed = propose(indexes, factors, racks)
    session.done(
        {"current": to_document(current), "proposed": to_document(proposed)},
        f"Current partition replica assignment\n{to_json(current)}\n",
        f"Proposed partition reassignment configuration\n{to_json(proposed)}",
    )


def execute_assignment(
    session: Session, admin: AdminClient, wanted: ReassignmentFile, limits: Limits, *, additional: bool
) -> None:
    """Begin the reassignment, with the limits, and return once it has begun.

    Raises:
        TidelogError: another one is in progress and this one is not ``additional``; an unknown partition or node;
            partitions that were refused, all named; a log directory was refused.
    """
    timeout_s = session.timeout_s
    ongoing = admin.list_partition_reassignments(request_timeout=timeout_s).result()
    if ongoing and not additional:
        text = f"{len(ongoing)} reassignments are in progress; --additional begins this one beside them"
        raise error_for(ErrorCode.REASSIGNMENT_IN_PROGRESS, text)
    known = {node.id for node in admin.describe_cluster(request_timeout=timeout_s).result().nodes}
    if not known.issuperset(wanted.brokers):
        text = f"there are no nodes {sorted(set(wanted.brokers) - known)}, only {sorted(known)}"
        raise error_for(ErrorCode.INVALID_REPLICA_ASSIGNMENT, text)
    current = _current_of(admin, wanted.assignment, timeout_s)
    session.say(f"Current partition replica assignment\n\n{to_json(current)}\n")
    session.say("Save this to use as the --reassignment-json-file option during rollback")
    _limit(session, admin, wanted, throttles.moves_of(wanted.assignment, current, ongoing), limits)
    if wanted.log_dirs:
        # A replica that does not exist yet is then created in this directory, and need not be moved there.
        _begin_log_dir_moves(admin, wanted.log_dirs, timeout_s)
    targets = {key: NewPartitionReassignment(replicas) for key, replicas in wanted.assignment.items()}
    _alter(admin, targets, timeout_s)
    session.say(f"Successfully started partition reassignment{_plural(targets)} for {_names(targets)}")
    _move_log_dirs(session, admin, wanted.log_dirs)
    if session.as_json:
        moved = [{"replica": str(replica), "log_dir": path} for replica, path in sorted(wanted.log_dirs.items())]
        print_json({"started": _documents(targets), "previous": to_document(current), "log_dirs": moved})


def verify_assignment(
    session: Session, admin: AdminClient, wanted: ReassignmentFile, *, preserve_throttles: bool, wait: bool
) -> bool:
    """Print the progress of the reassignment and, when none is in progress any more, remove its limits.

    With ``wait``, wait for the end of all moves first. Return whether the result matches the request, or will.
    """
    timeout_s = session.timeout_s
    statuses, log_dirs = _statuses(admin, wanted, timeout_s), _log_dir_statuses(admin, wanted, timeout_s)
    told = ""
    with ReportedBlock("the reassignment to complete") as waiting:
        while wait and (any(status.is_under_way for status in statuses) or UNDER_WAY in log_dirs.values()):
            progress = _progress(statuses, log_dirs)
            if progress != told:
                session.say(told := progress)
                waiting.note(progress)
            time.sleep(_POLL_S)
            statuses, log_dirs = _statuses(admin, wanted, timeout_s), _log_dir_statuses(admin, wanted, timeout_s)
    statuses = _confirmed(admin, wanted, statuses, timeout_s)
    _print_statuses(session, statuses, log_dirs)
    others = admin.list_partition_reassignments(request_timeout=timeout_s).result()
    if not others and UNDER_WAY not in log_dirs.values() and not preserve_throttles:
        _clear(session, admin, wanted.topics)
    fine = (COMPLETED, UNDER_WAY)
    return all(s.text in fine for s in statuses) and all(text in fine for text in log_dirs.values())


def cancel_assignment(
    session: Session, admin: AdminClient, wanted: ReassignmentFile, *, preserve_throttles: bool
) -> None:
    """Cancel the moves in progress of the named partitions, and remove their limits.

    Raises:
        TidelogError: a cancellation was refused.
    """
    timeout_s = session.timeout_s
    ongoing = admin.list_partition_reassignments(wanted.assignment, request_timeout=timeout_s).result()
    if ongoing:
        _alter(admin, dict.fromkeys(ongoing), timeout_s)
        session.say(f"Successfully cancelled partition reassignment{_plural(ongoing)} for {_names(ongoing)}")
    else:
        session.say("None of the specified partition reassignments are active.")
    places = _places(admin, wanted, timeout_s)
    back = {r: places[r][0] for r in wanted.log_dirs if r in places and places[r][0] and places[r][1]}
    if back:
        _move_log_dirs(session, admin, {replica: str(path) for replica, path in back.items()})
    if not preserve_throttles:
        _clear(session, admin, wanted.topics)
    if session.as_json:
        print_json({"cancelled": _documents(ongoing)})


def list_ongoing(session: Session, admin: AdminClient) -> None:
    """Print the reassignments in progress."""
    ongoing = admin.list_partition_reassignments(request_timeout=session.timeout_s).result()
    if not ongoing and not session.as_json:
        typer.echo("No partition reassignments found.")
        return
    records = [
        {
            "partition": _name(key),
            "replicas": list(r.replicas),
            "adding": list(r.adding_replicas),
            "removing": list(r.removing_replicas),
        }
        for key, r in sorted(ongoing.items(), key=itemgetter(0))
    ]
    session.show("reassignments", records, ("partition", "replicas", "adding", "removing"))


def _current(admin: AdminClient, topics: Iterable[str], timeout_s: float) -> Assignment:
    futures = admin.describe_topics(list(topics), request_timeout=timeout_s)
    return {
        TopicPartition(topic, partition.id): tuple(node.id for node in partition.replicas)
        for topic, future in futures.items()
        for partition in future.result().partitions
    }


def _current_of(admin: AdminClient, wanted: Assignment, timeout_s: float) -> Assignment:
    current = _current(admin, {key.topic for key in wanted}, timeout_s)
    unknown = [key for key in wanted if key not in current]
    if unknown:
        raise error_for(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"there is no partition {_names(unknown)}")
    return {key: current[key] for key in wanted}


def _racks(admin: AdminClient, brokers: Sequence[int], rack_aware: bool, timeout_s: float) -> dict[int, str | None]:
    nodes = {node.id: node.rack for node in admin.describe_cluster(request_timeout=timeout_s).result().nodes}
    unknown = sorted(set(brokers) - nodes.keys())
    if unknown:
        raise error_for(ErrorCode._INVALID_ARG, f"there are no nodes {unknown}, only {sorted(nodes)}")
    racks = {broker: nodes[broker] if rack_aware else None for broker in brokers}
    if None in racks.values() and any(racks.values()):
        without = [broker for broker, rack in racks.items() if rack is None]
        text = f"not all nodes have a rack: {without} have none. --disable-rack-aware does without"
        raise error_for(ErrorCode._INVALID_ARG, text)
    return racks


def _limit(
    session: Session,
    admin: AdminClient,
    wanted: ReassignmentFile,
    moves: Mapping[TopicPartition, throttles.Move],
    limits: Limits,
) -> None:
    if limits == Limits():
        return
    session.say("Warning: run --verify until the reassignment is complete: it takes the throttle away.")
    if limits.between_nodes is not None:
        throttles.set_throttle(admin, moves, limits.between_nodes, session.timeout_s)
        session.say(f"The inter-broker throttle limit was set to {limits.between_nodes} B/s")
    if limits.between_log_dirs is not None:
        brokers = {replica.broker_id for replica in wanted.log_dirs}
        throttles.set_log_dir_throttle(admin, brokers, limits.between_log_dirs, session.timeout_s)
        session.say(f"The replica-alter-dir throttle limit was set to {limits.between_log_dirs} B/s")


def _clear(session: Session, admin: AdminClient, topics: Sequence[str]) -> None:
    brokers = [node.id for node in admin.describe_cluster(request_timeout=session.timeout_s).result().nodes]
    throttles.clear_throttles(admin, brokers, topics, session.timeout_s)
    session.say(f"Cleared broker-level throttles on {_ids(brokers)}, topic-level throttles on {','.join(topics)}")


def _alter(
    admin: AdminClient, targets: Mapping[TopicPartition, NewPartitionReassignment | None], timeout_s: float
) -> None:
    _, errors = settle(admin.alter_partition_reassignments(targets, request_timeout=timeout_s))
    fail(errors.values())


def _begin_log_dir_moves(
    admin: AdminClient, targets: Mapping[TopicPartitionReplica, str], timeout_s: float
) -> dict[TopicPartitionReplica, str]:
    """Begin the moves, and return those that cannot begin yet because the replica does not exist."""
    waiting = {}
    for replica, future in admin.alter_replica_log_dirs(targets, request_timeout=timeout_s).items():
        try:
            future.result()
        except TidelogError as error:
            if error.code not in _NOT_YET:
                raise
            waiting[replica] = targets[replica]
    return waiting


def _move_log_dirs(session: Session, admin: AdminClient, targets: Mapping[TopicPartitionReplica, str]) -> None:
    timeout_s = session.timeout_s
    deadline_s = time.monotonic() + timeout_s
    waiting = dict(targets)
    with ReportedBlock("nodes to know the replicas that are to move to other log directories") as wait:
        while waiting:
            late = _begin_log_dir_moves(admin, waiting, timeout_s)
            for replica in sorted(waiting.keys() - late.keys()):
                session.say(f"Successfully started moving log directory to {waiting[replica]} for replica {replica}")
            waiting = late
            names = ", ".join(map(str, sorted(waiting)))
            wait.note(names)
            if waiting and time.monotonic() > deadline_s:
                text = f"no replica to move to its log directory within {timeout_s:g} s: {names}"
                raise error_for(ErrorCode.REQUEST_TIMED_OUT, text)
            time.sleep(_LOG_DIR_POLL_S if waiting else 0)


def _statuses(admin: AdminClient, wanted: ReassignmentFile, timeout_s: float) -> list[PartitionStatus]:
    ongoing = admin.list_partition_reassignments(wanted.assignment, request_timeout=timeout_s).result()
    current: dict[TopicPartition, tuple[int, ...]] = {}
    for topic in wanted.topics:
        try:
            current |= _current(admin, [topic], timeout_s)
        except TidelogError as error:
            if error.code is not ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
                raise
    return [
        PartitionStatus(key, target, ongoing[key].replicas if key in ongoing else current.get(key), key in ongoing)
        for key, target in sorted(wanted.assignment.items(), key=itemgetter(0))
    ]


def _confirmed(
    admin: AdminClient, wanted: ReassignmentFile, statuses: list[PartitionStatus], timeout_s: float
) -> list[PartitionStatus]:
    """Check apparent mismatches again for a moment: the node that answers may learn of the end a little later."""
    deadline_s = time.monotonic() + _METADATA_S
    while any(status.text == NOT_AS_ASKED for status in statuses) and time.monotonic() < deadline_s:
        time.sleep(_LOG_DIR_POLL_S)
        statuses = _statuses(admin, wanted, timeout_s)
    return statuses


def _places(
    admin: AdminClient, wanted: ReassignmentFile, timeout_s: float
) -> dict[TopicPartitionReplica, tuple[str | None, str | None]]:
    """Return the directory of each replica that names one, and that of its future copy."""
    brokers = sorted({replica.broker_id for replica in wanted.log_dirs})
    places: dict[TopicPartitionReplica, tuple[str | None, str | None]] = {}
    for broker, future in admin.describe_log_dirs(brokers, request_timeout=timeout_s).items():
        for path, description in future.result().items():
            for key, info in description.replica_infos.items():
                replica = TopicPartitionReplica(key.topic, key.partition, broker)
                now, future_path = places.get(replica, (None, None))
                places[replica] = (now, path) if info.is_future else (path, future_path)
    return places


def _log_dir_statuses(
    admin: AdminClient, wanted: ReassignmentFile, timeout_s: float
) -> dict[TopicPartitionReplica, str]:
    places = _places(admin, wanted, timeout_s)
    statuses = {}
    for replica, path in wanted.log_dirs.items():
        now, growing = places.get(replica, (None, None))
        if growing == path or now is None:
            statuses[replica] = UNDER_WAY if growing == path else UNKNOWN
        else:
            statuses[replica] = COMPLETED if now == path else f"in {now}"
    return statuses


def _progress(statuses: Sequence[PartitionStatus], log_dirs: Mapping[TopicPartitionReplica, str]) -> str:
    texts = [status.text for status in statuses] + list(log_dirs.values())
    return f"{texts.count(COMPLETED)} of {len(texts)} completed"


def _print_statuses(
    session: Session, statuses: Sequence[PartitionStatus], log_dirs: Mapping[TopicPartitionReplica, str]
) -> None:
    if session.as_json:
        partitions = [
            {
                "topic": s.key.topic,
                "partition": s.key.partition,
                "status": s.text,
                "replicas": None if s.replicas is None else list(s.replicas),
                "target": list(s.target),
            }
            for s in statuses
        ]
        moves = [{"replica": str(replica), "status": text} for replica, text in sorted(log_dirs.items())]
        print_json({"partitions": partitions, "log_dirs": moves})
        return
    rows = [(_name(s.key), s.text, _ids(s.replicas or ()), _ids(s.target)) for s in statuses]
    print_table(("PARTITION", "STATUS", "REPLICAS", "TARGET"), rows)
    if log_dirs:
        typer.echo()
        print_table(("REPLICA", "LOG DIRECTORY"), [(str(r), text) for r, text in sorted(log_dirs.items())])


def _documents(keys: Iterable[TopicPartition]) -> list[dict[str, object]]:
    return [{"topic": key.topic, "partition": key.partition} for key in sorted(keys)]


def _names(keys: Iterable[TopicPartition]) -> str:
    return ",".join(_name(key) for key in sorted(keys))


def _name(key: TopicPartition) -> str:
    return f"{key.topic}-{key.partition}"


def _ids(ids: Iterable[int]) -> str:
    return ",".join(map(str, ids))


def _plural(items: Mapping[TopicPartition, object]) -> str:
    return "" if len(items) == 1 else "s"
