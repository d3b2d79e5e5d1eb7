"""The readiness of a node as a pure function of facts.

A node is ready if it can do its part in the cluster: it serves its clients, the controllers know it as alive, it has
applied the metadata, and none of its replicas is still on the way back into the ISR. Replicas that make no progress are
reported and do not count, because no wait helps them.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from tidelog_foundation.dataclass import dataclass
from tidelog_foundation.monitoring.checks import Check

MAX_APPLY_DELAY_MS: Final = 5_000
"""The time after which a committed entry that is not applied makes a node unready."""
_NAMED_REPLICAS: Final = 5


@dataclass(frozen=True, slots=True)
class ReplicaFacts:
    """The replicas of a node outside their ISRs. ``catching_up`` and ``stuck`` have their names, ``lag`` is in records.

    ``are_known`` is False before the first observation. Replicas that a reassignment adds are not among them.
    """

    are_known: bool = False
    catching_up: Sequence[str] = ()
    stuck: Sequence[str] = ()
    lag: int = 0


@dataclass(frozen=True, slots=True)
class NodeFacts:
    """The state of a node at one moment.

    ``has_session`` is True while no controller can have fenced the node without its knowledge. ``is_stopping`` is True
    from the stop signal on. ``apply_delay_ms`` is the time for which the node has known of metadata that it has not
    applied, up to ``known_offset``.
    """

    is_serving: bool
    is_stopping: bool
    is_fenced: bool
    has_session: bool
    applied_offset: int
    known_offset: int
    apply_delay_ms: int
    replicas: ReplicaFacts


def node_checks(facts: NodeFacts) -> list[Check]:
    """Return the checks of a node."""
    return [_listeners(facts), _fencing(facts), _controllers(facts), _metadata(facts), _replicas(facts.replicas)]


def _listeners(facts: NodeFacts) -> Check:
    if facts.is_stopping:
        return Check("listeners", False, "the node is stopping")
    if not facts.is_serving:
        return Check("listeners", False, "the node does not serve its clients yet")
    return Check("listeners", True, "the node serves its clients")


def _fencing(facts: NodeFacts) -> Check:
    if facts.is_fenced:
        return Check("fencing", False, "the controllers have fenced the node")
    return Check("fencing", True, "the controllers have not fenced the node")


def _controllers(facts: NodeFacts) -> Check:
    if not facts.is_fenced and not facts.has_session:
        return Check("controllers", False, "no controller has answered a heartbeat for the time of a session")
    return Check("controllers", True, "a controller answers the heartbeats")


def _metadata(facts: NodeFacts) -> Check:
    position = f"applied up to offset {facts.applied_offset}, known up to {facts.known_offset}"
    if facts.apply_delay_ms > MAX_APPLY_DELAY_MS:
        delay = f"metadata waits to be applied for {facts.apply_delay_ms / 1000:.1f} s"
        return Check("metadata", False, f"{delay}: {position}")
    return Check("metadata", True, position)


def _replicas(replicas: ReplicaFacts) -> Check:
    if not replicas.are_known:
        return Check("replicas", False, "the replicas have not been examined yet")
    parts = []
    if replicas.catching_up:
        names = _named(replicas.catching_up)
        parts.append(f"{len(replicas.catching_up)} catch up, {replicas.lag} records behind: {names}")
    if replicas.stuck:
        parts.append(f"{len(replicas.stuck)} are not in sync and make no progress: {_named(replicas.stuck)}")
    return Check("replicas", not replicas.catching_up, "; ".join(parts) or "all are in sync")


def _named(replicas: Sequence[str]) -> str:
    more = len(replicas) - _NAMED_REPLICAS
    return ", ".join(replicas[:_NAMED_REPLICAS]) + (f" and {more} more" if more > 0 else "")
