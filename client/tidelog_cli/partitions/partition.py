"""``tidelog partition``: moves partitions to other nodes, and elects their leaders."""

from __future__ import annotations

import enum
from collections.abc import Mapping
from operator import itemgetter
from pathlib import Path
from typing import Annotated

import typer

from tidelog.admin import ElectionType
from tidelog.message import TopicPartition
from tidelog_cli.options.connection import Session, Yes, connected
from tidelog_cli.output import printing
from tidelog_cli.partitions.assignments import ReassignmentFile, read_partitions, read_reassignment, read_topics
from tidelog_cli.partitions.reassign import (
    Limits,
    cancel_assignment,
    execute_assignment,
    generate_assignment,
    list_ongoing,
    verify_assignment,
)
from tidelog_foundation.errors import ErrorCode, TidelogError

app = printing.command_group("Move partitions to other nodes, and elect their leaders.")

_Generate = Annotated[
    bool, typer.Option("--generate", help="Propose an assignment to the nodes of --broker-list; change nothing.")
]
_Execute = Annotated[bool, typer.Option("--execute", help="Begin the reassignment of --reassignment-json-file.")]
_Verify = Annotated[
    bool, typer.Option("--verify", help="Show the progress; remove the throttles when no reassignment is under way.")
]
_Cancel = Annotated[
    bool, typer.Option("--cancel", help="Cancel the moves of the file that are under way, and remove the throttles.")
]
_List = Annotated[bool, typer.Option("--list", help="Show all reassignments under way.")]
_ReassignmentFile = Annotated[
    Path | None,
    typer.Option(
        "--reassignment-json-file",
        exists=True,
        dir_okay=False,
        metavar="FILE",
        help="With --execute, --verify and --cancel: the reassignment.",
    ),
]
_Topics = Annotated[
    str | None, typer.Option("--topics", metavar="TOPIC,...", help="With --generate: the topics to move.")
]
_TopicsFile = Annotated[
    Path | None,
    typer.Option(
        "--topics-to-move-json-file",
        exists=True,
        dir_okay=False,
        metavar="FILE",
        help='With --generate: the same as {"version":1, "topics":[{"topic":"t"}]}.',
    ),
]
_BrokerList = Annotated[
    str | None, typer.Option("--broker-list", metavar="ID,...", help="With --generate: the nodes to move them to.")
]
_ReplicationFactor = Annotated[
    int | None,
    typer.Option(
        "--replication-factor", min=1, metavar="N", help="With --generate: change the number of replicas to this."
    ),
]
_DisableRackAware = Annotated[bool, typer.Option("--disable-rack-aware", help="With --generate: ignore racks.")]
_Throttle = Annotated[
    int | None,
    typer.Option(
        "--throttle",
        min=0,
        metavar="BYTES/S",
        help="With --execute: the rate at which each node may send and fetch for the moves.",
    ),
]
_LogDirsThrottle = Annotated[
    int | None,
    typer.Option(
        "--replica-alter-log-dirs-throttle",
        min=1,
        metavar="BYTES/S",
        help="With --execute: the rate at which each node may copy between its log directories.",
    ),
]
_Additional = Annotated[
    bool,
    typer.Option(
        "--additional", help="With --execute: proceed while other moves are under way, or change the throttle."
    ),
]
_PreserveThrottles = Annotated[
    bool, typer.Option("--preserve-throttles", help="With --verify and --cancel: leave the throttles as they are.")
]
_Wait = Annotated[
    bool, typer.Option("--wait", help="With --verify: wait until the moves are complete, and show the progress.")
]


class _Election(enum.StrEnum):
    PREFERRED = "preferred"
    UNCLEAN = "unclean"


@app.command()
@connected
def reassign(
    session: Session,
    generate: _Generate = False,
    execute: _Execute = False,
    verify: _Verify = False,
    cancel: _Cancel = False,
    list_: _List = False,
    reassignment_json_file: _ReassignmentFile = None,
    topics: _Topics = None,
    topics_to_move_json_file: _TopicsFile = None,
    broker_list: _BrokerList = None,
    replication_factor: _ReplicationFactor = None,
    disable_rack_aware: _DisableRackAware = False,
    throttle: _Throttle = None,
    log_dirs_throttle: _LogDirsThrottle = None,
    additional: _Additional = False,
    preserve_throttles: _PreserveThrottles = False,
    wait: _Wait = False,
) -> None:
    """Move partitions to other nodes, or change their number of replicas.

    Pass one of --generate, --execute, --verify, --cancel and --list. To propose a reassignment, save it,
    begin it and wait until it is complete:

    \b
    tidelog partition reassign --generate --topics flights \\
        --broker-list 1,2,3 | tail -1 > move.json
    tidelog partition reassign --execute --reassignment-json-file move.json
    tidelog partition reassign --verify --wait --reassignment-json-file move.json

    The file may be written by hand. The first replica is the preferred leader; log_dirs may be left out:

    \b
    {"version":1, "partitions":[{"topic":"flights", "partition":0,
        "replicas":[3,4], "log_dirs":["any","/disk2/tidelog"]}]}
    """
    actions = {"generate": generate, "execute": execute, "verify": verify, "cancel": cancel, "list": list_}
    action = _one_of({f"--{name}": is_given for name, is_given in actions.items()})
    _check_options(
        action,
        {
            "--reassignment-json-file": (reassignment_json_file, ("--execute", "--verify", "--cancel")),
            "--topics": (topics, ("--generate",)),
            "--topics-to-move-json-file": (topics_to_move_json_file, ("--generate",)),
            "--broker-list": (broker_list, ("--generate",)),
            "--replication-factor": (replication_factor, ("--generate",)),
            "--disable-rack-aware": (disable_rack_aware or None, ("--generate",)),
            "--throttle": (throttle, ("--execute",)),
            "--replica-alter-log-dirs-throttle": (log_dirs_throttle, ("--execute",)),
            "--additional": (additional or None, ("--execute",)),
            "--preserve-throttles": (preserve_throttles or None, ("--verify", "--cancel")),
            "--wait": (wait or None, ("--verify",)),
        },
    )
    with session.admin() as admin:
        if list_:
            list_ongoing(session, admin)
        elif generate:
            names, brokers = _topics(topics, topics_to_move_json_file), _brokers(broker_list)
            generate_assignment(session, admin, names, brokers, replication_factor, rack_aware=not disable_rack_aware)
        elif execute:
            limits, wanted = Limits(throttle, log_dirs_throttle), _wanted(action, reassignment_json_file)
            execute_assignment(session, admin, wanted, limits, additional=additional)
        elif cancel:
            wanted = _wanted(action, reassignment_json_file)
            cancel_assignment(session, admin, wanted, preserve_throttles=preserve_throttles)
        else:
            wanted = _wanted(action, reassignment_json_file)
            is_fine = verify_assignment(session, admin, wanted, preserve_throttles=preserve_throttles, wait=wait)
            raise typer.Exit(0 if is_fine else 1)


@app.command("elect-leaders")
@connected
def elect_leaders(
    session: Session,
    election_type: Annotated[
        _Election,
        typer.Option(
            "--election-type",
            metavar="preferred|unclean",
            help="preferred: the first replica, where another leads. unclean: any replica that lives, where nobody "
            "leads; records that only others have are lost.",
        ),
    ],
    all_topic_partitions: Annotated[
        bool, typer.Option("--all-topic-partitions", help="For all partitions that need it.")
    ] = False,
    topic: Annotated[str | None, typer.Option("--topic", "-t", metavar="TOPIC", help="For this topic ...")] = None,
    partitions: Annotated[
        list[int] | None,
        typer.Option("--partition", "-p", min=0, metavar="N", help="... this partition. May be repeated."),
    ] = None,
    path_to_json_file: Annotated[
        Path | None,
        typer.Option(
            "--path-to-json-file",
            exists=True,
            dir_okay=False,
            metavar="FILE",
            help='For these: {"partitions":[{"topic":"t", "partition":0}]}.',
        ),
    ] = None,
    yes: Yes = False,
) -> None:
    """Elect the preferred replicas as leaders, or any replica where a partition has no leader.

    \b
    Examples:
      tidelog partition elect-leaders --election-type preferred \\
          --all-topic-partitions
      tidelog partition elect-leaders --election-type unclean -y -t flights -p 0
    """
    _one_of(
        {
            "--all-topic-partitions": all_topic_partitions,
            "--topic": topic is not None,
            "--path-to-json-file": path_to_json_file is not None,
        }
    )
    if (topic is None) is not (partitions is None):
        raise printing.UsageError("--topic and --partition must be given together.")
    wanted = None
    if path_to_json_file is not None:
        wanted = read_partitions(path_to_json_file)
    elif topic is not None:
        wanted = [TopicPartition(topic, index) for index in dict.fromkeys(partitions or ())]
    if election_type is _Election.UNCLEAN:
        printing.confirm("elect leaders that may lack committed records, and lose those records", yes)
    timeout = session.timeout_s
    with session.admin() as admin:
        kind = ElectionType[election_type.name]
        outcomes = admin.elect_leaders(kind, wanted, operation_timeout=timeout, request_timeout=timeout).result()
    _print_elections(session, outcomes)


def _print_elections(session: Session, outcomes: Mapping[TopicPartition, TidelogError | None]) -> None:
    records: list[dict[str, object]] = []
    failed: list[TidelogError] = []
    for key, error in sorted(outcomes.items(), key=itemgetter(0)):
        record: dict[str, object] = {"partition": f"{key.topic}-{key.partition}", "election": "elected"}
        if error is not None and error.code is ErrorCode.ELECTION_NOT_NEEDED:
            record["election"] = "not needed"
        elif error is not None:
            failed.append(error)
            record |= {"election": error.code.name, "error": printing.error_document(error)}
        records.append(record)
    if session.as_json:
        printing.print_json({"partitions": records})
    elif records:
        printing.print_records(records, ("partition", "election"))
    else:
        typer.echo("No partition needs an election.")
    printing.fail(failed)


def _one_of(given: Mapping[str, bool]) -> str:
    chosen = [option for option, is_given in given.items() if is_given]
    if len(chosen) != 1:
        raise printing.UsageError(f"Pass exactly one of {', '.join(given)}, not {len(chosen)}.")
    return chosen[0]


def _check_options(action: str, options: Mapping[str, tuple[object, tuple[str, ...]]]) -> None:
    for option, (value, permitted) in options.items():
        if value is not None and action not in permitted:
            raise printing.UsageError(f"{option} can be used with {' and '.join(permitted)}, not with {action}.")


def _wanted(action: str, path: Path | None) -> ReassignmentFile:
    if path is None:
        raise printing.UsageError(f"{action} needs --reassignment-json-file.")
    return read_reassignment(path)


def _topics(names: str | None, path: Path | None) -> list[str]:
    if (names is None) is (path is None):
        raise printing.UsageError("--generate needs either --topics or --topics-to-move-json-file.")
    if path is not None:
        return read_topics(path)
    topics = [name.strip() for name in (names or "").split(",")]
    if "" in topics or len(set(topics)) != len(topics):
        raise typer.BadParameter(f'"{names}" is not a list of different topics.', param_hint="--topics")
    return topics


def _brokers(text: str | None) -> list[int]:
    if text is None:
        raise printing.UsageError("--generate needs --broker-list.")
    try:
        brokers = [int(part) for part in text.split(",")]
    except ValueError:
        brokers = []
    if not brokers or len(set(brokers)) != len(brokers):
        raise typer.BadParameter(f'"{text}" is not a list of different node ids.', param_hint="--broker-list")
    return brokers
