"""One run of the simulation: a schedule in, what happened out."""

from __future__ import annotations

from collections.abc import Callable

from sim.nemesis import Nemesis
from sim.outcome import Outcome, noting_violations
from sim.recovery import Recovery
from sim.schedule import Schedule
from sim.world import World


def run(
    schedule: Schedule, *, check_every: int = 8, on_world: Callable[[World], None] = lambda _world: None
) -> Outcome:
    """Run a schedule to its end and through recovery, or to the first broken property.

    The core's own invariants are asserted after every ``check_every``-th step.
    """
    outcome = Outcome(schedule.seed)
    world = nemesis = None
    with noting_violations(outcome):
        world = World(schedule, check_every=check_every)
        on_world(world)
        nemesis = Nemesis(world)
        world.run_until(schedule.end_ms * 1000)
        outcome.counts["recovered"] = int(Recovery(world, nemesis).run())
    if world is not None and nemesis is not None:
        _count(outcome, world, nemesis)
    return outcome


def _count(outcome: Outcome, world: World, nemesis: Nemesis) -> None:
    cluster = world.cluster
    outcome.fingerprint = world.fingerprint & 0xFFFFFFFFFFFFFFFF
    outcome.counts |= {
        "events": world.events,
        "simulated ms": world.now_ms,
        "elections": len(cluster.checker.leader_of_term),
        "committed": len(cluster.committed),
        "acknowledged": len(cluster.checker.acknowledged),
        "voter changes": len(cluster.checker.voter_sets) - 1,
        "reads": sum(index is not None for node in cluster.nodes.values() for index in node.reads.values()),
        "starts": sum(around.life for around in world.around.values()),
        **cluster.counts,
        **{f"action {name}": count for name, count in nemesis.counts.items()},
    }
