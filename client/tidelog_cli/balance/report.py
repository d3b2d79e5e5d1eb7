"""A plan as a JSON document and as tables. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from tidelog.message import TopicPartition
from tidelog_cli.balance.goals import Goal
from tidelog_cli.balance.planner import Move, Plan
from tidelog_cli.balance.snapshot import ClusterSnapshot
from tidelog_cli.output.printing import counted

MOVE_COLUMNS = ("partition", "bytes", "replicas", "target", "leader")
_RATES = (Goal.BYTES_IN, Goal.BYTES_OUT)


def document(snapshot: ClusterSnapshot, plan: Plan) -> dict[str, Any]:
    """Return a plan as the object that ``--json`` prints."""
    return {
        "moves": [_move(snapshot, move) for move in plan.moves],
        "elections": [name(key) for key in plan.elections],
        "bytes": plan.bytes,
        "nodes": [
            {
                "node": load.node,
                "rack": snapshot.nodes[load.node].rack,
                "state": snapshot.nodes[load.node].state.value,
                "capacity_bytes": snapshot.nodes[load.node].capacity_bytes,
                "before": _values(load.before),
                "after": _values(load.after),
            }
            for load in plan.loads
        ],
        "obstacles": [{"partition": name(o.key), "node": o.node, "reason": o.reason} for o in plan.obstacles],
        "limited": plan.is_limited,
    }


def move_rows(snapshot: ClusterSnapshot, plan: Plan) -> list[list[object]]:
    """Return the rows of the table of moves, below :data:`MOVE_COLUMNS`."""
    return [
        [name(m.key), m.bytes, _ids(m.before), _ids(m.after), _arrow(snapshot.partitions[m.key].leader, m.after[0])]
        for m in plan.moves
    ]


def node_table(snapshot: ClusterSnapshot, plan: Plan) -> tuple[list[str], list[list[object]]]:
    """Return the header and rows of the nodes' table: each value before and after; rates only if they are known."""
    has_rates = any(load.before[goal] for load in plan.loads for goal in _RATES)
    goals = [goal for goal in Goal if has_rates or goal not in _RATES]
    header = ["NODE", "RACK", "STATE"]
    for goal in goals:
        header += [goal.name.replace("_", " "), "AFTER"]
    rows = []
    for load in plan.loads:
        node = snapshot.nodes[load.node]
        row: list[object] = [load.node, node.rack or "-", node.state.value]
        for goal in goals:
            row += [load.before[goal], load.after[goal]]
        rows.append(row)
    return header, rows


def summary(plan: Plan) -> str:
    """Return a sentence on the extent of a plan."""
    if plan.is_empty:
        return "Nothing to do: the cluster is as planned."
    copies = sum(len(move.adding) for move in plan.moves)
    leaders = sum(not move.adding for move in plan.moves) + len(plan.elections)
    text = f"{counted(copies, 'replica')} to copy ({plan.bytes:,} bytes), {counted(leaders, 'leader')} to change."
    return f"{text} --max-bytes prevents further moves." if plan.is_limited else text


def name(key: TopicPartition) -> str:
    """Return a partition as topic-0."""
    return f"{key.topic}-{key.partition}"


def _move(snapshot: ClusterSnapshot, move: Move) -> dict[str, Any]:
    return {
        "topic": move.key.topic,
        "partition": move.key.partition,
        "replicas": list(move.before),
        "target": list(move.after),
        "leader": snapshot.partitions[move.key].leader,
        "bytes": move.bytes,
    }


def _values(values: Sequence[int]) -> Mapping[str, int]:
    return {goal.name.lower(): values[goal] for goal in Goal}


def _arrow(leader: int, preferred: int) -> str:
    return str(leader) if leader == preferred else f"{leader} -> {preferred}"


def _ids(ids: Sequence[int]) -> str:
    return ",".join(map(str, ids))
