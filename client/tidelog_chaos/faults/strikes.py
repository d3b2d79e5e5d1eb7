"""The effects of each fault, its targets, which are chosen when it begins, and its end.

A process that another fault has taken is left to it, so that no fault ends what another began. A log is damaged only
while every ISR is complete and no other fault is active, and not again until all are complete once more: acknowledged
records survive the loss of one replica, and no more is guaranteed.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol

from tidelog_chaos.drivers.driver import CLIENTS, Cut, Delay, FaultDriver, Member
from tidelog_chaos.faults.plan import PlannedFault
from tidelog_chaos.metrics import ClusterView

if TYPE_CHECKING:
    from tidelog_chaos.moves import Move


_MAX_SKEW_MS = 300_000
_SHARES = (0.1, 0.2, 0.4)
_LOSSES = (0.0, 0.0, 0.01, 0.05)
_AHEAD_S = (0.3, 1.2)
_CATCH_UP_S = (0.5, 2.5)
_WHOLE_TIMEOUT_S = 15.0
_MAJORITY_S = (3.0, 8.0)


class ClusterWatch(Protocol):
    """The nemesis's view of the cluster."""

    @property
    def view(self) -> ClusterView:
        """The current leaders."""

    def wait_whole(self, timeout_s: float) -> str | None:
        """Wait until every replica is in sync; return what is missing after the timeout, else None."""


class ReplicaMover(Protocol):
    """Moves replicas of partitions: one of the cluster's own operations, under faults."""

    def begin(self, kind: str, dice: random.Random) -> Move | None:
        """Begin to move replicas of some partitions; None if that is impossible."""

    def undo(self, move: Move) -> None:
        """Begin to move them back."""

    def restore(self) -> None:
        """Move back all remaining ones, however long it takes; raise RuntimeError if it takes too long."""


@dataclass(slots=True)
class ActiveFault:
    """A fault in progress: its description, the processes that it has taken, and its end."""

    planned: PlannedFault
    description: str
    members: frozenset[Member]
    undo: Callable[[], None]
    cut: Cut = field(default_factory=frozenset)


class Strikes:
    """Begins faults, in the nemesis's thread; ``active`` are those in progress, which the nemesis keeps."""

    def __init__(
        self, driver: FaultDriver, watch: ClusterWatch, mover: ReplicaMover, active: Sequence[ActiveFault]
    ) -> None:
        self._driver = driver
        self._watch = watch
        self._mover = mover
        self._active = active
        self.damaged: set[Member] = set()
        """Members whose disks were full or damaged."""

    def begin(self, planned: PlannedFault) -> ActiveFault | None:
        """Begin a fault; None if it has no target now. Raises RuntimeError: the driver failed."""
        begin = {
            "kill": self._kill,
            "stop": self._stop,
            "pause": self._pause,
            "slow": self._slow,
            "partition": self._partition,
            "delay": self._delay,
            "disk-full": self._fill_disk,
            "disk-corrupt": self._damage,
            "clock": self._skew,
            "reassign": self._reassign,
            "certificates": self._change_certificates,
            "credentials": self._change_credentials,
        }[planned.fault]
        return begin(planned, random.Random(planned.seed))

    def _free(self, planned: PlannedFault, dice: random.Random) -> list[Member]:
        """Return the targets of a fault: those that it names and that no other fault has taken."""
        return self._pick_free(planned.kind, dice)

    def _pick_free(self, kind: str, dice: random.Random) -> list[Member]:
        return pick(kind, self._free_members(), self._watch.view, dice)

    def _free_members(self) -> list[Member]:
        taken = {member for fault in self._active for member in fault.members}
        return [m for m in self._driver.members if m not in taken and self._driver.is_running(m)]

    def _kill(self, planned: PlannedFault, dice: random.Random) -> ActiveFault | None:
        match planned.kind:
            case "ahead":
                return self._kill_ahead(planned, dice)
            case "again":
                return self._kill_again(planned, dice)
            case "relay":
                return self._kill_in_turn(planned, dice)
        members = self._free(planned, dice)
        for member in members:
            self._driver.kill(member)
        return self._fault(planned, f"kill {_names(members)}", members, self._revive_all(members, dice))

    def _kill_ahead(self, planned: PlannedFault, dice: random.Random) -> ActiveFault | None:
        """Kill a leader with records that no other node has; it returns with them."""
        nodes = [m for m in self._driver.members if m.kind == "node"]
        if len(nodes) < 2 or not set(self._free_members()).issuperset(nodes):
            return None
        [leader] = pick("leader", nodes, self._watch.view, dice)
        others = [node for node in nodes if node != leader]
        for node in others:
            self._driver.pause(node)
        try:
            time.sleep(dice.uniform(*_AHEAD_S))
            self._driver.kill(leader)
        finally:
            for node in others:
                self._driver.resume(node)
        text = f"kill {leader} while the other nodes were paused"
        return self._fault(planned, text, [leader], self._revive_all([leader], dice))

    def _kill_again(self, planned: PlannedFault, dice: random.Random) -> ActiveFault | None:
        """Kill a node, and again while it fetches the records that it missed."""
        [*nodes] = self._pick_free("node", dice)
        catch_up_s = dice.uniform(*_CATCH_UP_S)

        def undo() -> None:
            for node in nodes:
                self._driver.revive(node)
                time.sleep(catch_up_s)
                self._driver.kill(node)
                self._driver.revive(node)

        for node in nodes:
            self._driver.kill(node)
        return self._fault(planned, f"kill {_names(nodes)}, and again as it comes back", nodes, undo)

    def _kill_in_turn(self, planned: PlannedFault, dice: random.Random) -> ActiveFault | None:
        """Kill a second node before the first, which has missed records, returns."""
        nodes = [m for m in self._free_members() if m.kind == "node"]
        if len(nodes) < 2:
            return None
        first, second = dice.sample(nodes, 2)
        alone_s = dice.uniform(*_CATCH_UP_S)

        def undo() -> None:
            self._driver.kill(second)
            self._driver.revive(first)
            time.sleep(alone_s)
            self._driver.revive(second)

        self._driver.kill(first)
        return self._fault(planned, f"kill {first}, then {second} as it comes back", [first, second], undo)

    def _stop(self, planned: PlannedFault, dice: random.Random) -> ActiveFault | None:
        """Run alone, because a node that is stopping waits for the controllers."""
        members = [] if self._active else self._free(planned, dice)
        try:
            for member in members:
                self._driver.stop(member)
        except RuntimeError:
            self._revive_all(members, dice)()
            raise
        return self._fault(planned, f"stop {_names(members)}", members, self._revive_all(members, dice))

    def _pause(self, planned: PlannedFault, dice: random.Random) -> ActiveFault | None:
        members = self._free(planned, dice)
        for member in members:
            self._driver.pause(member)
        return self._fault(planned, f"pause {_names(members)}", members, _each(self._driver.resume, members))

    def _slow(self, planned: PlannedFault, dice: random.Random) -> ActiveFault | None:
        members, share = self._free(planned, dice), dice.choice(_SHARES)
        for member in members:
            self._driver.slow(member, share)
        text = f"slow {_names(members)} to {share:.0%}"
        return self._fault(planned, text, members, _each(self._driver.unslow, members))

    def _partition(self, planned: PlannedFault, dice: random.Random) -> ActiveFault | None:
        if any(fault.cut for fault in self._active):
            return None
        cut, text = draw_cut(planned.kind, self._driver.members, self._watch.view, dice)
        self._driver.cut(cut)
        # Network faults take no process: one that is cut off may be killed as well.
        return ActiveFault(planned, f"partition {text}", frozenset(), lambda: self._driver.cut(frozenset()), cut)

    def _delay(self, planned: PlannedFault, dice: random.Random) -> ActiveFault | None:
        if any(fault.planned.fault == "delay" for fault in self._active):
            return None
        members = pick(planned.kind, self._driver.members, self._watch.view, dice)
        delay = Delay(loss=dice.choice(_LOSSES))
        undo = _each(self._driver.undelay, members)
        try:
            for member in members:
                self._driver.delay(member, delay)
        except RuntimeError:
            undo()
            raise
        return ActiveFault(planned, f"delay {_names(members)} by {delay}", frozenset(), undo)

    def _fill_disk(self, planned: PlannedFault, dice: random.Random) -> ActiveFault | None:
        members = [m for m in self._free(planned, dice) if m.kind == "node"]
        for member in members:
            self._driver.fill_disk(member)
        self.damaged.update(members)
        return self._fault(
            planned, f"fill the disk of {_names(members)}", members, _each(self._driver.free_disk, members)
        )

    def _damage(self, planned: PlannedFault, dice: random.Random) -> ActiveFault | None:
        if self._active or self._watch.wait_whole(_WHOLE_TIMEOUT_S) is not None:
            return None
        if planned.kind == "stale-majority":
            return self._make_stale_majority(planned, dice)
        [node] = pick("node", self._driver.members, self._watch.view, dice)
        self._driver.kill(node)
        done = self._driver.damage(node, planned.kind, dice)
        self.damaged.add(node)
        text = f"kill {node} and damage its log: {done or 'all of it was flushed'}"
        return self._fault(planned, text, [node], self._revive_whole(node))

    def _make_stale_majority(self, planned: PlannedFault, dice: random.Random) -> ActiveFault | None:
        """Leave a node that missed records and one that lost its unflushed ones alone together for a while.

        They are a majority, but neither may lead if only the other nodes have all acknowledged records.
        """
        nodes = [m for m in self._driver.members if m.kind == "node"]
        if len(nodes) < 3:
            return None
        stale, crashed, *others = dice.sample(nodes, len(nodes))
        alone_s = dice.uniform(*_MAJORITY_S)

        def undo() -> None:
            self._driver.kill(crashed)
            self._driver.damage(crashed, "lose", dice)
            for node in others:
                self._driver.pause(node)
            try:
                self._driver.resume(stale)
                self._driver.revive(crashed)
                time.sleep(alone_s)
            finally:
                for node in others:
                    self._driver.resume(node)
            self._watch.wait_whole(_WHOLE_TIMEOUT_S)

        self._driver.pause(stale)
        self.damaged.add(crashed)
        text = f"pause {stale}, then leave it alone with {crashed}, which has lost what it had not flushed"
        return self._fault(planned, text, nodes, undo)

    def _reassign(self, planned: PlannedFault, dice: random.Random) -> ActiveFault | None:
        move = self._mover.begin(planned.kind, dice)
        if move is None:
            return None
        return ActiveFault(planned, f"move {move}", frozenset(), lambda: self._mover.undo(move))

    def _change_certificates(self, planned: PlannedFault, dice: random.Random) -> ActiveFault | None:
        """Renew certificates, or spoil one: its process keeps the old one, and could not start again."""
        if planned.kind in ("expired", "broken"):
            members = self._pick_free("any", dice)
            for member in members:
                self._driver.spoil_certificate(member, planned.kind)
            text = f"give {_names(members)} a certificate that is {planned.kind}"
            return self._fault(planned, text, members, _each(self._driver.renew_certificate, members))
        members = self._free(planned, dice)
        for member in members:
            self._driver.renew_certificate(member)
        return self._fault(planned, f"renew the certificate of {_names(members)}", members, lambda: None)

    def _change_credentials(self, planned: PlannedFault, dice: random.Random) -> ActiveFault | None:
        """Change the password of the clients' user or its salt, or create another user, who is then deleted."""
        text = self._driver.change_credentials(planned.kind)
        return ActiveFault(planned, text, frozenset(), lambda: None) if text is not None else None

    def _skew(self, planned: PlannedFault, dice: random.Random) -> ActiveFault | None:
        if any(fault.planned.fault == "clock" for fault in self._active):
            return None
        members = pick(planned.kind, self._driver.members, self._watch.view, dice)
        if not members:
            return None
        skews = {member: dice.randint(-_MAX_SKEW_MS, _MAX_SKEW_MS) for member in members}
        for member, ms in skews.items():
            self._driver.skew(member, ms)
        by = f"{skews[members[0]] / 1000:+.1f} s" if len(members) == 1 else f"up to {_MAX_SKEW_MS / 1000:.0f} s each"
        text = f"clock of {_names(members)} by {by}"
        return ActiveFault(planned, text, frozenset(), _each(lambda m: self._driver.skew(m, 0), members))

    def _fault(
        self, planned: PlannedFault, text: str, members: Sequence[Member], undo: Callable[[], None]
    ) -> ActiveFault | None:
        return ActiveFault(planned, text, frozenset(members), undo) if members else None

    def _revive_all(self, members: Sequence[Member], dice: random.Random) -> Callable[[], None]:
        return _each(self._driver.revive, dice.sample(list(members), len(members)))

    def _revive_whole(self, node: Member) -> Callable[[], None]:
        def revive() -> None:
            self._driver.revive(node)
            self._watch.wait_whole(_WHOLE_TIMEOUT_S)

        return revive


def _each(do: Callable[[Member], None], members: Sequence[Member]) -> Callable[[], None]:
    def do_all() -> None:
        for member in members:
            do(member)

    return do_all


def _names(members: Sequence[Member]) -> str:
    return ", ".join(map(str, members)) if len(members) < 4 else f"{len(members)} processes"


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
            ), f"{_target_names(few)} | {_target_names(set(members) - few)}"
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


def _target_names(members: set[Member]) -> str:
    return ", ".join(map(str, sorted(members)))
