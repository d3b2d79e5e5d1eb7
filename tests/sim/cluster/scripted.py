"""The script that has found real bugs in such systems, as schedules: a stale minority and a disk that forgets.

One of three is cut off for 30 seconds and falls behind. Another one crashes and loses what was not on its disk, and
the third goes away just then: the two that are left are a majority, but have not all that was acknowledged.
"""

from __future__ import annotations

import dataclasses
from itertools import permutations

from sim.cluster.schedule import CONTROLLER, LEADER, NODE, Action, Schedule, TopicPlan, Topology

from tidelog_quorum.raft.core.config import RaftConfig

ORDERS = tuple(permutations(range(3)))
"""The orders of three replicas: the first is cut off, the second crashes, the third goes away."""
CUT_OFF_MS = 30_000
_CUT_AT_MS = 300
_BACK_AT_MS = _CUT_AT_MS + CUT_OFF_MS
_CRASH_AT_MS = _BACK_AT_MS - 30
_AWAY_MS = 3_000
_ALL_THAT_IS_NOT_SYNCED = 1
_APPLY_MS = 500


def stale_replicas(order: tuple[int, int, int], *, uses_elr: bool) -> Schedule:
    """Return the script for the nodes of a partition with ``min.insync.replicas=2``."""
    minority, crashed, away = order
    actions = (
        Action(0, _CUT_AT_MS, "isolate", NODE, minority, CUT_OFF_MS),
        Action(1, _CRASH_AT_MS, "power", NODE, crashed, 1, extra=_ALL_THAT_IS_NOT_SYNCED),
        Action(2, _CRASH_AT_MS + 5, "pause", NODE, away, _AWAY_MS),
    )
    return Schedule(ORDERS.index(order), _topology(uses_elr), _BACK_AT_MS + _AWAY_MS + 500, actions)


def stale_controllers(order: tuple[int, int, int]) -> Schedule:
    """Return the script for the controllers, whose log grows with a topic's settings meanwhile."""
    minority, crashed, away = order
    actions = [
        Action(0, _CUT_AT_MS, "isolate", CONTROLLER, minority, CUT_OFF_MS),
        # Its disk is slow just before, so that there is something that is not synced.
        Action(0, _CRASH_AT_MS - 25, "stall", CONTROLLER, crashed, 100),
        Action(0, _CRASH_AT_MS, "kill", CONTROLLER, crashed, 1),
        Action(0, _CRASH_AT_MS + 5, "kill", CONTROLLER, away, _AWAY_MS),
    ]
    often = [
        *range(500, _CRASH_AT_MS - 500, 1_000),
        *range(_CRASH_AT_MS - 50, _CRASH_AT_MS + 100, 4),
        *range(_CRASH_AT_MS + 100, _BACK_AT_MS + _AWAY_MS, 40),
    ]
    actions += [Action(0, at_ms, "min_isr", LEADER, 0, 0, 1 + number % 2) for number, at_ms in enumerate(often)]
    numbered = sorted(actions, key=lambda action: action.at_ms)
    actions = [dataclasses.replace(action, number=number) for number, action in enumerate(numbered)]
    end_ms = _BACK_AT_MS + _AWAY_MS + 500
    return Schedule(ORDERS.index(order), _topology(uses_elr=True), end_ms, tuple(actions))


def late_expand(seed: int) -> Schedule:
    """Return a cluster for ``LateExpand``: two replicas, of which one is enough."""
    topology = dataclasses.replace(
        _topology(uses_elr=False),
        topics=(TopicPlan("t0", 1, 2, (("segment.bytes", "1000000"),)),),
        min_isr=1,
        max_lag_ms=120,
        every_ms=12,
    )
    return Schedule(seed, topology, 4_000, ())


def raised_min_isr() -> Schedule:
    """Return the script of a leader whose next image has a higher min.insync.replicas and a smaller ISR (KIP-966).

    The follower, node 1 of two, is cut off. It leaves the ISR below the new setting, and so stays an eligible leader.
    Then the leader is killed: it must not have committed, by the old setting, what the follower lacks.
    """
    topology = dataclasses.replace(
        _topology(uses_elr=True),
        nodes=2,
        topics=(TopicPlan("t0", 1, 2, (("segment.bytes", "1000000"),)),),
        min_isr=1,
        apply_ms=_APPLY_MS,
        every_ms=12,
    )
    first_change_ms = 1_080  # Nodes apply it for _APPLY_MS; the image after it has the setting and the ISR.
    actions = (
        Action(0, 1_000, "isolate", NODE, 1, 1_300),
        Action(1, first_change_ms, "min_isr", LEADER, 0, 0, 1),
        Action(2, 1_150, "min_isr", LEADER, 0, 0, 2),
        Action(3, first_change_ms + 2 * _APPLY_MS + 60, "kill", NODE, 0, 5_000),
    )
    return Schedule(1, topology, 4_000, actions)


def _topology(uses_elr: bool) -> Topology:
    return Topology(
        controllers=3,
        nodes=3,
        topics=(TopicPlan("t0", 1, 3, (("segment.bytes", "1000000"),)),),
        raft=RaftConfig(election_timeout_ms=120, heartbeat_interval_ms=50, max_trailing_entries=1_000),
        uses_elr=uses_elr,
        min_isr=2,
        session_ms=400,
        heartbeat_ms=130,
        max_lag_ms=200,
        fetch_wait_ms=100,
        fetch_bytes=10_000,
        fetch_sessions=1_000,
        apply_ms=0,
        checkpoint_ms=300,
        housekeeping_ms=150,
        producers=1,
        batches=400,
        every_ms=80,
        max_in_flight=5,
        message_timeout_ms=60_000,
        has_unsafe_producer=False,
        consumers=1,
        from_replicas=False,
        is_gentle=True,
        clocks=((0, 1000),) * 24,
    )
