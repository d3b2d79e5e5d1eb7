"""A fake cluster that records operations and fails where a driver would be misused."""

from __future__ import annotations

import random
import threading
from collections.abc import Iterable, Mapping, Sequence

from tidelog_chaos.drivers import Cut, Delay, FaultDriver, Member
from tidelog_chaos.metrics import ClusterView
from tidelog_chaos.moves import Move


class FakeDriver(FaultDriver):
    """Tracks the members that are down, paused, slow, delayed, skewed, full and cut off.

    ``broken`` faults raise RuntimeError.
    """

    def __init__(self, controllers: int = 3, nodes: int = 3, broken: Iterable[str] = ()) -> None:
        super().__init__()
        self._members = [Member("controller", i + 1) for i in range(controllers)]
        self._members += [Member("node", i + 1) for i in range(nodes)]
        self.broken = set(broken)
        self.log: list[str] = []
        self.down: set[Member] = set()
        self.hurt: dict[str, set[Member]] = {
            name: set() for name in ("pause", "slow", "delay", "disk", "clock", "certificate")
        }
        self.current_cut: Cut = frozenset()
        self.most_cut = 0

    @property
    def members(self) -> Sequence[Member]:
        return self._members

    def refusals(self, faults: Iterable[str]) -> Mapping[str, str]:
        return {}

    @property
    def is_healed(self) -> bool:
        """True if no fault is active."""
        return not self.down and not self.current_cut and not any(self.hurt.values())

    def is_running(self, member: Member) -> bool:
        return member not in self.down

    def kill(self, member: Member) -> None:
        self._do("kill", member)
        assert member not in self.down, f"{member} is killed twice"
        assert member not in self.hurt["certificate"], f"{member} cannot start again with its certificate"
        self.hurt["pause"].discard(member)
        self.down.add(member)

    def stop(self, member: Member) -> None:
        self._do("stop", member)
        assert not self.down, "a controlled stop among other faults"
        assert member not in self.hurt["certificate"], f"{member} cannot start again with its certificate"
        self.down.add(member)

    def revive(self, member: Member) -> None:
        self.log.append(f"revive {member}")
        self.down.discard(member)

    def pause(self, member: Member) -> None:
        self._begin("pause", member)

    def resume(self, member: Member) -> None:
        self.hurt["pause"].discard(member)

    def slow(self, member: Member, share: float) -> None:
        assert 0 < share < 1
        self._begin("slow", member)

    def unslow(self, member: Member) -> None:
        self.hurt["slow"].discard(member)

    def cut(self, cut: Cut) -> None:
        if cut:
            self._do("partition", None)
            assert not self.current_cut, "one partition replaces another"
        self.current_cut = cut
        self.most_cut = max(self.most_cut, len(cut))

    def delay(self, member: Member, delay: Delay) -> None:
        self._begin("delay", member)

    def undelay(self, member: Member) -> None:
        self.hurt["delay"].discard(member)

    def fill_disk(self, member: Member) -> None:
        assert member.kind == "node"
        self._begin("disk", member)

    def free_disk(self, member: Member) -> None:
        self.hurt["disk"].discard(member)

    def damage(self, member: Member, kind: str, dice: random.Random) -> str | None:
        self._do(f"damage-{kind}", member)
        nodes = {down for down in self.down if down.kind == "node"}
        assert nodes == {member}, "a log is damaged while another node is down, or while its own runs"
        return "something"

    def skew(self, member: Member, ms: int) -> None:
        if ms:
            self._begin("clock", member)
        else:
            self.hurt["clock"].discard(member)

    def renew_certificate(self, member: Member) -> None:
        self._do("renew the certificate of", member)
        self.hurt["certificate"].discard(member)

    def spoil_certificate(self, member: Member, kind: str) -> None:
        self._begin("certificate", member)

    def change_credentials(self, kind: str) -> bool:
        self._do(f"change {kind}", None)
        return True

    def _begin(self, fault: str, member: Member) -> None:
        self._do(fault, member)
        assert member not in self.hurt[fault], f"{fault} of {member} begins twice"
        self.hurt[fault].add(member)

    def _do(self, fault: str, member: Member | None) -> None:
        if fault in self.broken:
            raise RuntimeError(f"{fault} does not work here")
        self.log.append(f"{fault} {member}")


class FakeWatch:
    """Reports the leaders. ``missing`` is the reason why the cluster is not whole."""

    def __init__(self, view: ClusterView | None = None) -> None:
        self.view = view or ClusterView({"t-0": 1}, 1)
        self.missing: str | None = None
        self.asked = threading.Semaphore(0)

    def wait_whole(self, timeout_s: float) -> str | None:
        self.asked.release()
        return self.missing


class FakeMover:
    """Records moves. ``away`` are the moves that were not undone; ``stuck`` makes undoing impossible."""

    def __init__(self) -> None:
        self.away: list[Move] = []
        self.begun = 0
        self.stuck = False

    def begin(self, kind: str, dice: random.Random) -> Move | None:
        self.begun += 1
        self.away.append(Move({"t-0": (1, 2)}, {"t-0": (2, 3)}))
        return self.away[-1]

    def undo(self, move: Move) -> None:
        """Leave the move to :meth:`restore`, as if the cluster did not answer."""

    def restore(self) -> None:
        if self.stuck:
            raise RuntimeError("t-0 could not be moved back")
        self.away.clear()
