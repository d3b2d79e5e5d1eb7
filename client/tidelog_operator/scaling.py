"""Changes of the number of pods, step by step. Pure.

More nodes: the StatefulSet grows at once. A node of a former size whose cordon is left gets replicas again.

Fewer nodes: the ids beyond the wanted number leave. They are cordoned, so that they get no new replicas; their replicas
move to the other nodes; and only when they are empty the StatefulSet shrinks. Then the stopped nodes are unregistered.
A replica that has nowhere to go refuses the change before the first cordon. No replica is ever given up.

More controllers: the StatefulSet grows, and each new controller gets its vote, one at a time (KIP-853). Fewer: the
votes of the highest ids go first, one at a time, then the StatefulSet shrinks. Controllers keep their majority
throughout.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field

from tidelog_operator.resources import CONTROLLER, FIRST_ID, NODE


@dataclass(frozen=True, slots=True)
class NodesState:
    """The nodes as observed.

    ``replicas`` is that of the StatefulSet. ``registered`` maps the ids of registered nodes to their numbers of
    replicas; ``fenced`` ones do not run. ``pods`` are the ids of existing pods, ``obstacles`` the reasons for which
    replicas cannot leave, and ``marked`` the ids of nodes that the operator has cordoned.
    """

    replicas: int
    registered: Mapping[int, int] = field(default_factory=dict)
    fenced: Collection[int] = ()
    cordoned: Collection[int] = ()
    pods: Collection[int] = ()
    obstacles: Collection[str] = ()
    marked: Collection[int] = ()


@dataclass(frozen=True, slots=True)
class SetReplicas:
    """Set the replicas of the StatefulSet of a role."""

    role: str
    replicas: int


@dataclass(frozen=True, slots=True)
class Cordon:
    """Keep new replicas away from the nodes."""

    ids: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class LiftCordon:
    """Permit new replicas on the nodes again."""

    ids: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Drain:
    """Begin the next moves away from the nodes, and wait for those in progress."""

    ids: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Unregister:
    """Remove stopped, empty nodes from the cluster."""

    ids: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class AddVoter:
    """Give a controller a vote."""

    id: int


@dataclass(frozen=True, slots=True)
class RemoveVoter:
    """Take a controller's vote away."""

    id: int


@dataclass(frozen=True, slots=True)
class Refuse:
    """Change nothing; ``message`` says what stands in the way."""

    message: str


@dataclass(frozen=True, slots=True)
class Settled:
    """Nothing is left to do."""


Step = SetReplicas | Cordon | LiftCordon | Drain | Unregister | AddVoter | RemoveVoter | Refuse | Settled


def leaving_ids(wanted: int, replicas: int) -> tuple[int, ...]:
    """Return the ids of the nodes that a StatefulSet loses, the highest first."""
    first = FIRST_ID[NODE]
    return tuple(range(first + replicas - 1, first + wanted - 1, -1))


def next_node_step(wanted: int, state: NodesState) -> Step:
    """Return the next step towards the wanted number of nodes."""
    end = FIRST_ID[NODE] + wanted
    kept = tuple(sorted(i for i in state.marked if i < end and i in state.registered))
    if kept:
        return LiftCordon(kept)
    if wanted > state.replicas:
        return SetReplicas(NODE, wanted)
    if wanted < state.replicas:
        return _shrink(wanted, state)
    gone = (i for i in state.registered if i >= end and i not in state.pods and i in state.fenced)
    empty = tuple(sorted(i for i in gone if not state.registered[i]))
    return Unregister(empty) if empty else Settled()


def _shrink(wanted: int, state: NodesState) -> Step:
    leaving = leaving_ids(wanted, state.replicas)
    if state.obstacles:
        return Refuse("; ".join(sorted(state.obstacles)))
    # A node that never registered has no replicas and cannot be cordoned. One that does not run cannot be asked.
    done = {*state.cordoned, *(i for i in state.marked if i in state.fenced)}
    open_ids = tuple(i for i in leaving if i in state.registered and i not in done)
    if open_ids:
        return Cordon(open_ids)
    if any(state.registered.get(i, 0) for i in leaving):
        return Drain(leaving)
    return SetReplicas(NODE, wanted)


def next_controller_step(
    wanted: int, replicas: int, voters: Collection[int], observers: Collection[int], *, are_ready: bool
) -> Step:
    """Return the next step towards the wanted number of controllers.

    ``replicas`` is that of the StatefulSet, ``observers`` are the controllers that follow without a vote, and
    ``are_ready`` says whether all pods of controllers are ready.
    """
    if wanted > replicas:
        return SetReplicas(CONTROLLER, wanted)
    end = FIRST_ID[CONTROLLER] + wanted
    beyond = sorted(i for i in voters if i >= end)
    if beyond:
        return RemoveVoter(beyond[-1])
    if wanted < replicas:
        return SetReplicas(CONTROLLER, wanted)
    missing = sorted(i for i in observers if FIRST_ID[CONTROLLER] <= i < end and i not in voters)
    if missing and are_ready:
        return AddVoter(missing[0])
    return Settled()
