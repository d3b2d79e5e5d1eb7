"""``tidelog cluster rebalance``: spreads replicas, leaders and load over the nodes."""

from __future__ import annotations

from typing import Annotated

import typer

from tidelog.admin import AdminClient
from tidelog_cli.balance import report
from tidelog_cli.balance.execution import DEFAULT_MOVES_PER_NODE, Execution, Pace, stop, watch
from tidelog_cli.balance.goals import Goal, Policy
from tidelog_cli.balance.measurement import take_snapshot, with_rates
from tidelog_cli.balance.planner import Plan, make_plan
from tidelog_cli.balance.snapshot import ClusterSnapshot, NodeState
from tidelog_cli.options.connection import Session, connected
from tidelog_cli.options.durations import seconds
from tidelog_cli.output.printing import UsageError, counted, print_json, print_table, print_warning

MovesPerNode = Annotated[
    int, typer.Option("--concurrency", min=1, metavar="N", help="The moves in progress of each node.")
]
Throttle = Annotated[
    int | None,
    typer.Option(
        "--throttle",
        min=1,
        metavar="BYTES/S",
        help="The rate at which each node may send and fetch for the moves. Default: unlimited.",
    ),
]
Sample = Annotated[
    float | None,
    typer.Option(
        "--sample",
        parser=seconds(1.0),
        metavar="SECONDS",
        help="Measure the rates of partitions for this time. Default: rates do not count.",
    ),
]
Metrics = Annotated[
    list[str] | None,
    typer.Option(
        "--metrics",
        metavar="URL",
        help="With --sample: a node's metrics, such as http://node1:9404/metrics, which count what consumers read. "
        "May be repeated.",
    ),
]
_NAMES = {goal.name.lower().replace("_", "-"): goal for goal in Goal}
_DEFAULTS = Policy()


@connected
def rebalance(
    session: Session,
    plan_: Annotated[bool, typer.Option("--plan", help="Show what would move; change nothing.")] = False,
    execute: Annotated[
        bool, typer.Option("--execute", help="Move it, and wait until all is done; run it again to continue.")
    ] = False,
    watch_: Annotated[bool, typer.Option("--watch", help="Show the progress until nothing moves any more.")] = False,
    stop_: Annotated[
        bool, typer.Option("--stop", help="Cancel all moves in progress; what has moved remains where it is.")
    ] = False,
    goals: Annotated[
        str,
        typer.Option("--goals", metavar="GOAL,...", help="What to balance; earlier goals precede later ones."),
    ] = ",".join(_NAMES),
    threshold: Annotated[
        int,
        typer.Option(
            "--threshold", min=0, max=100, metavar="PERCENT", help="The deviation from a fair share that is in balance."
        ),
    ] = _DEFAULTS.threshold_percent,
    capacity: Annotated[
        int,
        typer.Option(
            "--capacity", min=1, max=100, metavar="PERCENT", help="The share of a node's disks that replicas may fill."
        ),
    ] = _DEFAULTS.capacity_percent,
    max_bytes: Annotated[
        int | None,
        typer.Option("--max-bytes", min=0, metavar="BYTES", help="Copy at most this much. Default: no limit."),
    ] = None,
    sample: Sample = None,
    metrics: Metrics = None,
    concurrency: MovesPerNode = DEFAULT_MOVES_PER_NODE,
    throttle: Throttle = None,
) -> None:
    """Spread replicas, leaders and load evenly over the nodes.

    Pass one of --plan, --execute, --watch and --stop. Replicas of a partition stay in as many racks as before, or
    more, and no disk is filled beyond --capacity. Ctrl-C ends --execute, not the moves in progress.

    \b
    Examples:
      tidelog cluster rebalance --plan
      tidelog cluster rebalance --execute --throttle 50000000
    """
    actions = {"--plan": plan_, "--execute": execute, "--watch": watch_, "--stop": stop_}
    if sum(actions.values()) != 1:
        raise UsageError(f"Pass exactly one of {', '.join(actions)}, not {sum(actions.values())}.")
    if metrics and sample is None:
        raise UsageError("--metrics needs --sample.")
    policy = Policy(_parse_goals(goals), threshold, capacity, max_bytes=max_bytes)
    with session.admin() as admin:
        if watch_:
            moved = watch(session, admin)
            session.done({"moves": moved}, f"{counted(moved, 'move')} complete; nothing is in progress.")
        elif stop_:
            _stop(session, admin)
        else:
            snapshot = take_snapshot(admin, session.timeout_s)
            if sample is not None:
                snapshot = with_rates(admin, snapshot, sample, metrics or (), session.timeout_s)
            made = make_plan(snapshot, policy)
            if plan_:
                show_plan(session, snapshot, made)
            else:
                _execute(session, admin, snapshot, made, Pace(concurrency, throttle))


def show_plan(session: Session, snapshot: ClusterSnapshot, plan: Plan) -> None:
    """Print a plan: moves, nodes before and after, and what stands in the way."""
    if session.as_json:
        print_json(report.document(snapshot, plan))
        return
    if plan.moves:
        print_table([column.upper() for column in report.MOVE_COLUMNS], report.move_rows(snapshot, plan))
        typer.echo()
    if plan.elections:
        typer.echo(f"preferred leaders to elect: {', '.join(map(report.name, plan.elections))}\n")
    print_table(*report.node_table(snapshot, plan))
    typer.echo(f"\n{report.summary(plan)}")
    warn(snapshot, plan)


def warn(snapshot: ClusterSnapshot, plan: Plan) -> None:
    """Print warnings about partitions that stay where they are: for nodes that do not run, and on leaving nodes."""
    for node in snapshot.nodes.values():
        kept = sum(node.id in partition.replicas for partition in snapshot.partitions.values())
        if node.state in (NodeState.FENCED, NodeState.CORDONED) and kept:
            stay = f"{counted(kept, 'partition')} with a replica on it stay as is"
            print_warning(f"node {node.id} is {node.state.value}: {stay}")
    for obstacle in plan.obstacles:
        state = snapshot.nodes[obstacle.node].state.value
        print_warning(f"{report.name(obstacle.key)} stays on node {obstacle.node} ({state}): {obstacle.reason}")


def _stop(session: Session, admin: AdminClient) -> None:
    cancelled = [report.name(key) for key in stop(admin, session.timeout_s)]
    text = f"cancelled {counted(len(cancelled), 'move')}" + (f": {', '.join(cancelled)}" if cancelled else "")
    session.done({"cancelled": cancelled}, text)


def _execute(session: Session, admin: AdminClient, snapshot: ClusterSnapshot, plan: Plan, pace: Pace) -> None:
    warn(snapshot, plan)
    session.say(report.summary(plan))
    try:
        Execution(session, admin, plan, pace).run()
    except KeyboardInterrupt:
        typer.echo("The moves in progress go on; --execute continues the rest, and --stop cancels them.", err=True)
        raise
    document = {"moves": len(plan.moves), "bytes": plan.bytes, "elections": len(plan.elections)}
    session.done(document | {"limited": plan.is_limited}, *(() if plan.is_empty else ("The rebalance is complete.",)))


def _parse_goals(text: str) -> tuple[Goal, ...]:
    names = [part.strip() for part in text.split(",")]
    unknown = [each for each in names if each not in _NAMES]
    if unknown or len(set(names)) != len(names):
        problem = f'"{text}" is not a list of different goals of {", ".join(_NAMES)}.'
        raise typer.BadParameter(problem, param_hint="--goals")
    return tuple(_NAMES[each] for each in names)
