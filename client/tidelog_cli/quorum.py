"""``tidelog quorum``: the controllers' quorum and its metadata log. Entry points provide ``dump`` and ``format``."""

from __future__ import annotations

import base64
import binascii
import dataclasses
import time
from collections.abc import Iterable, Mapping
from typing import Annotated, Any, ClassVar

import typer

from tidelog.admin import QuorumAdmin, QuorumInfo, QuorumReplicaState, SnapshotInfo
from tidelog_cli.extensions import ExtensibleGroup
from tidelog_cli.metadata.backup import backup
from tidelog_cli.metadata.log_levels import log_levels
from tidelog_cli.metadata.new_quorum import recover, restore
from tidelog_cli.options.connection import Session, connected
from tidelog_cli.options.controllers import Controllers
from tidelog_cli.output.printing import command_group, error_document, fail, print_json, print_table
from tidelog_foundation.config.endpoints import format_address, parse_address
from tidelog_foundation.errors import ConfigError, ErrorCode, TidelogError, error_for
from tidelog_foundation.ids import uuid_text
from tidelog_foundation.waiting import ReportedBlock


class _QuorumGroup(ExtensibleGroup):
    entry_point_group: ClassVar[str] = "tidelog.quorum.commands"
    extras: ClassVar[Mapping[str, str]] = {"dump": "quorum", "format": "quorum"}


app = command_group("Show and change the controllers' quorum, and read its metadata log.", _QuorumGroup)

_DIRECTORY_ID_SIZE = 16
_LABEL_WIDTH = 24
_PAUSE_S = 0.1

DirectoryId = Annotated[
    str,
    typer.Option(
        "--directory-id",
        metavar="ID",
        help="Apply the change only if the controller's log has this directory id, which describe shows.",
    ),
]


@app.command()
@connected
def describe(
    session: Session,
    replication: Annotated[
        bool, typer.Option("--replication", "-r", help="Show how far each controller has replicated the log.")
    ] = False,
    human_readable: Annotated[
        bool, typer.Option("--human-readable", "-H", help="With --replication: show times as the time since then.")
    ] = False,
    bootstrap_controller: Controllers = None,
) -> None:
    """Show the leader, voters and observers of the quorum, and their lag.

    Example: tidelog quorum describe --replication
    """
    with session.quorum_admin(bootstrap_controller) as admin:
        quorum = admin.describe_metadata_quorum(request_timeout=session.timeout_s)
    if session.as_json:
        print_json(_as_dict(quorum))
    elif replication:
        _print_replication(quorum, human_readable)
    else:
        _print_status(quorum)


@app.command("add-voter")
@connected
def add_voter(
    session: Session,
    controller: Annotated[int, typer.Argument(metavar="ID", help="The id of a controller that follows the log.")],
    endpoint: Annotated[
        str | None,
        typer.Option(
            "--endpoint",
            metavar="HOST:PORT",
            help="The address at which others reach the controller. Default: the one that it reports.",
        ),
    ] = None,
    directory_id: DirectoryId = "",
    bootstrap_controller: Controllers = None,
) -> None:
    """Make a controller that follows the log a voter, once it has caught up.

    Example: tidelog quorum add-voter 4
    """
    with session.quorum_admin(bootstrap_controller) as admin:
        host, port = _endpoint(endpoint) if endpoint else _endpoint_of_observer(admin, controller, session.timeout_s)
        admin.add_raft_voter(controller, _directory_id(directory_id), host, port, request_timeout=session.timeout_s)
    address = format_address(host, port)
    document = {"controller": controller, "address": address, "voter": True}
    session.done(document, f"controller {controller} at {address} is a voter")


@app.command("remove-voter")
@connected
def remove_voter(
    session: Session,
    controller: Annotated[int, typer.Argument(metavar="ID", help="The id of the controller, which may be the leader.")],
    directory_id: DirectoryId = "",
    bootstrap_controller: Controllers = None,
) -> None:
    """Remove a controller from the voters.

    While its process runs, it keeps following the log.

    Example: tidelog quorum remove-voter 3
    """
    with session.quorum_admin(bootstrap_controller) as admin:
        admin.remove_raft_voter(controller, _directory_id(directory_id), request_timeout=session.timeout_s)
    document = {"controller": controller, "voter": False}
    session.done(document, f"controller {controller} is no longer a voter")


@app.command("update-voter")
@connected
def update_voter(
    session: Session,
    controller: Annotated[int, typer.Argument(metavar="ID", help="The id of a voter.")],
    endpoint: Annotated[
        str,
        typer.Option("--endpoint", metavar="HOST:PORT", help="The address at which others reach the controller."),
    ],
    directory_id: DirectoryId = "",
    bootstrap_controller: Controllers = None,
) -> None:
    """Change the address of a voter that is away.

    A controller that runs announces its address itself.

    Example: tidelog quorum update-voter 3 --endpoint 10.0.0.9:9093
    """
    host, port = _endpoint(endpoint)
    with session.quorum_admin(bootstrap_controller) as admin:
        admin.update_raft_voter(controller, _directory_id(directory_id), host, port, request_timeout=session.timeout_s)
    address = format_address(host, port)
    session.done({"controller": controller, "address": address}, f"the address of controller {controller} is {address}")


@app.command()
@connected
def transfer(
    session: Session,
    controller: Annotated[
        int | None,
        typer.Argument(metavar="ID", help="The id of the new leader. Default: the voter with the longest log."),
    ] = None,
    bootstrap_controller: Controllers = None,
) -> None:
    """Transfer leadership to another controller.

    Example: tidelog quorum transfer 2
    """
    with session.quorum_admin(bootstrap_controller) as admin:
        leader_id = admin.transfer_leadership(controller, request_timeout=session.timeout_s)
    session.done({"leader": leader_id}, f"controller {leader_id} is the leader")


@app.command()
@connected
def snapshot(
    session: Session,
    controllers: Annotated[
        list[int] | None,
        typer.Option(
            "--controller", "-c", metavar="ID", help="Only this controller. May be repeated. Default: all voters."
        ),
    ] = None,
    bootstrap_controller: Controllers = None,
) -> None:
    """Make controllers take a snapshot of their state and drop the log before it.

    Example: tidelog quorum snapshot --controller 1
    """
    taken: dict[int, SnapshotInfo] = {}
    errors: dict[int, TidelogError] = {}
    with session.quorum_admin(bootstrap_controller) as admin:
        quorum = admin.describe_metadata_quorum(request_timeout=session.timeout_s)
        for controller in controllers or [voter.replica_id for voter in quorum.voters]:
            try:
                taken[controller] = admin.take_snapshot(controller, request_timeout=session.timeout_s)
            except TidelogError as error:
                errors[controller] = error
    records = [
        {"controller": c, "snapshot_offset": s.snapshot_offset, "log_start_offset": s.log_start_offset}
        for c, s in taken.items()
    ]
    if session.as_json:
        failed = [{"controller": c, "error": error_document(e)} for c, e in errors.items()]
        print_json({"controllers": [*records, *failed]})
    elif records:
        session.show("controllers", records, ("controller", "snapshot_offset", "log_start_offset"))
    fail(errors.values())


app.command("log-levels")(log_levels)
app.command()(backup)
app.command()(restore)
app.command()(recover)


def _endpoint(text: str) -> tuple[str, int]:
    try:
        return parse_address(text)
    except ConfigError as error:
        raise typer.BadParameter(error.message, param_hint="--endpoint") from error


def _endpoint_of_observer(admin: QuorumAdmin, controller: int, timeout_s: float) -> tuple[str, int]:
    """Return the address that a controller announces; a new controller may not have announced it yet."""
    deadline = time.monotonic() + timeout_s
    with ReportedBlock(f"controller {controller} to say where it listens"):
        while True:
            quorum = admin.describe_metadata_quorum(request_timeout=timeout_s)
            found = [r for r in (*quorum.observers, *quorum.voters) if r.replica_id == controller]
            if found and found[0].host:
                return found[0].host, found[0].port
            if not found or time.monotonic() > deadline:
                break
            time.sleep(_PAUSE_S)
    text = f"no controller {controller} follows the log: start it first, with controller.quorum.bootstrap.servers"
    raise error_for(ErrorCode.VOTER_NOT_FOUND, text)


def _directory_id(text: str) -> bytes:
    if not text:
        return b""
    try:
        decoded = base64.b64decode(text + "==", altchars=b"-_", validate=True)
    except (ValueError, binascii.Error):
        decoded = b""
    if len(decoded) != _DIRECTORY_ID_SIZE:
        raise typer.BadParameter(
            f'"{text}" is not a directory id, which has 22 letters, digits, "-" and "_".', param_hint="--directory-id"
        )
    return decoded


def _show_directory_id(directory_id: bytes) -> str:
    """Return Kafka's text form of a 16-byte id; "-" if unknown."""
    return uuid_text(directory_id) or "-"


def _show_addresses(replica: QuorumReplicaState) -> str:
    """Return the address, or those of all listeners with their names if there are several."""
    if len(replica.endpoints) > 1:
        return ",".join(f"{e.name}://{format_address(e.host, e.port)}" for e in replica.endpoints)
    return format_address(replica.host, replica.port)


def _print_status(quorum: QuorumInfo) -> None:
    """Print what kafka-metadata-quorum describe --status prints, with a table in place of its JSON."""
    leader = next((v for v in quorum.voters if v.replica_id == quorum.leader_id), None)
    slowest = min(quorum.voters, key=lambda v: v.log_end_offset, default=None)
    lag, lag_ms = 0, 0
    if leader is not None and slowest is not None and slowest.log_end_offset < leader.log_end_offset:
        lag, lag_ms = leader.log_end_offset - slowest.log_end_offset, _lag_ms(leader, slowest)
    values = {
        "ClusterId": quorum.cluster_id,
        "LeaderId": quorum.leader_id,
        "LeaderEpoch": quorum.leader_epoch,
        "HighWatermark": quorum.high_watermark,
        "MaxFollowerLag": lag,
        "MaxFollowerLagTimeMs": lag_ms,
    }
    for label, value in values.items():
        typer.echo(f"{f'{label}:':<{_LABEL_WIDTH}}{value}")
    typer.echo()
    rows = [
        (r.replica_id, _show_addresses(r), _show_directory_id(r.directory_id), _role(r, quorum))
        for r in (*_leader_first(quorum.voters, quorum.leader_id), *quorum.observers)
    ]
    print_table(("NodeId", "Address", "DirectoryId", "Status"), rows)


def _role(replica: QuorumReplicaState, quorum: QuorumInfo) -> str:
    if replica.replica_id == quorum.leader_id:
        return "Leader"
    return "Follower" if replica in quorum.voters else "Observer"


def _lag_ms(leader: QuorumReplicaState, follower: QuorumReplicaState) -> int:
    if leader.last_caught_up_timestamp is None or follower.last_caught_up_timestamp is None:
        return -1
    return leader.last_caught_up_timestamp - follower.last_caught_up_timestamp


def _print_replication(quorum: QuorumInfo, human_readable: bool) -> None:
    ends = {v.replica_id: v.log_end_offset for v in quorum.voters}
    leader_end = ends.get(quorum.leader_id, quorum.high_watermark)
    now_ms = int(time.time() * 1000)

    def shown(timestamp: int | None) -> int | str:
        if human_readable:
            return "never" if timestamp is None else f"{max(0, now_ms - timestamp)} ms ago"
        return -1 if timestamp is None else timestamp

    rows = [
        (
            r.replica_id,
            _show_directory_id(r.directory_id),
            r.log_end_offset,
            max(0, leader_end - r.log_end_offset),
            shown(r.last_fetch_timestamp),
            shown(r.last_caught_up_timestamp),
            "Leader" if r.replica_id == quorum.leader_id else status,
        )
        for status, replicas in (("Follower", quorum.voters), ("Observer", quorum.observers))
        for r in _leader_first(replicas, quorum.leader_id)
    ]
    headers = ("NodeId", "DirectoryId", "LogEndOffset", "Lag", "LastFetchTimestamp", "LastCaughtUpTimestamp", "Status")
    print_table(headers, rows)


def _leader_first(replicas: Iterable[QuorumReplicaState], leader_id: int) -> list[QuorumReplicaState]:
    return sorted(replicas, key=lambda r: (r.replica_id != leader_id, r.replica_id))


def _as_dict(quorum: QuorumInfo) -> dict[str, Any]:
    def replica(r: QuorumReplicaState) -> dict[str, Any]:
        return dataclasses.asdict(r) | {"directory_id": _show_directory_id(r.directory_id)}

    return dataclasses.asdict(quorum) | {
        "voters": [replica(v) for v in quorum.voters],
        "observers": [replica(o) for o in quorum.observers],
    }
