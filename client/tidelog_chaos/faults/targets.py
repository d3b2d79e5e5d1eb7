"""Picks the targets of a fault, from the current leaders and the active faults."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence

from tidelog_chaos.drivers.driver import CLIENTS, Cut, Member
from tidelog_chaos.metrics import ClusterView


def pick(kind: str, members: Sequence[Member], view: ClusterView, dice: random.Random) -> list[Member]:
    """Return the members that a kind of fault names: a leader, any one, several; none if there is none.

    The leader may be unknown, for example while the cluster does not answer; then any member of that sort is picked.
    """
    nodes = [m for m in members if m.kind == "node"]
    controllers = [m for m in members if m.kind == "controller"]
    leaders = [m for m in nodes if m.id in set((view.leaders or {}).values())]
    leading = [m for m in controllers if m.id == view.controller]
    match kind:
        case "leader" | "isolate-leader":
            return _one(leaders or nodes, dice)
        case "node":
            return _one(nodes, dice)
        case "controller-leader":
            return _one(leading or controllers, dice)
        case "controller":
            return _one(controllers, dice)
        case "leader-and-controller-leader":
            return [*_one(leading or controllers, dice), *_one(leaders or nodes, dice)]
        case "all":
            return list(members)
        case _:
            return _one(members, dice)


def draw_cut(kind: str, members: Sequence[Member], view: ClusterView, dice: random.Random) -> tuple[Cut, str]:
    """Return a partition of a kind, and its description. Clients reach all members that they are not cut off from."""
    match kind:
        case "halves":
            mixed = dice.sample(list(members), len(members))
            few = set(mixed[: (len(mixed) - 1) // 2])
            return _between(
                members, lambda a, b: (a in few) != (b in few)
            ), f"{_names(few)} | {_names(set(members) - few)}"
        case "ring":
            ring = dice.sample(list(members), len(members))
            places = {member: index for index, member in enumerate(ring)}
            apart = _between(members, lambda a, b: (places[a] - places[b]) % len(ring) not in (1, len(ring) - 1))
            return apart, f"ring {' - '.join(map(str, ring))}"
    [target] = pick("node" if kind == "clients" else kind, members, view, dice)
    match kind:
        case "isolate-out":
            return _between(members, lambda a, b: a == target), f"{target} cannot send"
        case "isolate-in":
            return _between(members, lambda a, b: b == target), f"{target} cannot receive"
        case "clients":
            cut: Cut = frozenset([(CLIENTS, target), (target, CLIENTS)])
            return cut, f"{target} | clients"
        case _:
            return _between(members, lambda a, b: target in (a, b)), f"{target} | the others"


def _one(members: Sequence[Member], dice: random.Random) -> list[Member]:
    return [dice.choice(list(members))] if members else []


def _between(members: Sequence[Member], is_apart: Callable[[Member, Member], bool]) -> Cut:
    return frozenset((a, b) for a in members for b in members if a != b and is_apart(a, b))


def _names(members: set[Member]) -> str:
    return ", ".join(map(str, sorted(members)))
