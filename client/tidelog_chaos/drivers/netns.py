"""Each process in its own network namespace, joined by a bridge: partitions in each direction, delay and loss.

The bridge is in the run's own network namespace (:mod:`tidelog_chaos.isolation`), where the clients are too. Nothing of
it is visible from outside, and the kernel removes all of it with the run's last process. A neighbour entry that leads
nowhere cuts a direction: packets leave and are lost, as in a network, and no call fails.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from tidelog.testing.process import Place
from tidelog_chaos.drivers.delay_line import DelayLine, has_tun
from tidelog_chaos.drivers.driver import CLIENTS, Cut, Delay, Member
from tidelog_chaos.drivers.local import LocalDriver
from tidelog_chaos.isolation import run, why_not

_BRIDGE = "chaos"
_SUBNET = "10.213.0"
_CLIENTS_HOST = 254
_FIRST_NODE = 101
_PORTS = {"controller": 9093, "node": 9094}
_KAFKA_PORT = 9092
_NOWHERE = "02:00:00:00:00:fe"
_NAMES = Path("/run/netns")


class NetnsDriver(LocalDriver):
    """The local driver with a network in between. The process must be isolated (``isolate(network=True)``)."""

    def __init__(
        self,
        data_dir: Path,
        controllers: int,
        nodes: int,
        config: Mapping[str, object],
        faults: Sequence[str],
        disk_mib: int = 512,
        security: str | None = None,
    ) -> None:
        super().__init__(data_dir, controllers, nodes, config, faults, disk_mib, security)
        self._cut: Cut = frozenset()
        self._lines: dict[Member, DelayLine] = {}

    def start(self) -> None:
        """Create the network, then start the processes in it."""
        _mount_names()
        run("ip", "link", "add", _BRIDGE, "type", "bridge")
        run("ip", "addr", "add", f"{_SUBNET}.{_CLIENTS_HOST}/24", "dev", _BRIDGE)
        run("ip", "link", "set", _BRIDGE, "up")
        for member in self.members:
            self._join(member)
        super().start()

    def close(self) -> None:
        """Heal, end the processes and remove the network."""
        self.cut(frozenset())
        for member in list(self._lines):
            self.undelay(member)
        super().close()

    def cut(self, cut: Cut) -> None:
        """Drop the packets that the first of each pair sends to the second."""
        # Kept up to date in between, so that every change is undone even if the next command fails.
        for source, target in self._cut - cut:
            _neighbour(source, "del", target)
            self._cut -= {(source, target)}
        for source, target in cut - self._cut:
            _neighbour(source, "replace", target)
            self._cut |= {(source, target)}

    def delay(self, member: Member, delay: Delay) -> None:
        """Delay packets that a process sends, and drop some of them."""
        self.undelay(member)
        namespace = _NAMES / _namespace(member)
        self._lines[member] = DelayLine(namespace, _host(member), delay.ms, delay.jitter_ms, delay.loss)

    def undelay(self, member: Member) -> None:
        """End the delay; packets in transit are lost."""
        line = self._lines.pop(member, None)
        if line is not None:
            line.end()

    def refusals(self, faults: Iterable[str]) -> Mapping[str, str]:
        """Refuse everything without namespaces, and delays if the kernel does not support them."""
        reason = why_not(network=True)
        if reason is not None:
            return dict.fromkeys(faults, reason)
        return super().refusals(faults)

    def _refusal(self, fault: str) -> str | None:
        match fault:
            case "partition":
                return None
            case "delay":
                return None if has_tun() else "there is no /dev/net/tun that this user may open (CONFIG_TUN)"
            case _:
                return super()._refusal(fault)

    def _place(self, kind: str, node_id: int) -> Place:
        member = Member("controller" if kind == "controller" else "node", node_id)
        wrapper = ("nsenter", f"--net={_NAMES / _namespace(member)}", "--")
        return Place(_host(member), _PORTS[kind], wrapper, self._launcher(kind, node_id), _KAFKA_PORT)

    def _join(self, member: Member) -> None:
        namespace, outside = _namespace(member), f"v{_namespace(member)}"
        run("ip", "netns", "add", namespace)
        run("ip", "link", "add", outside, "type", "veth", "peer", "name", "eth0", "netns", namespace)
        run("ip", "link", "set", outside, "master", _BRIDGE, "up")
        run("ip", "-n", namespace, "addr", "add", f"{_host(member)}/24", "dev", "eth0")
        run("ip", "-n", namespace, "link", "set", "eth0", "up")
        run("ip", "-n", namespace, "link", "set", "lo", "up")


def _mount_names() -> None:
    """Create a place for the names of namespaces, which are files: in memory of this run only, and gone with it."""
    try:
        _NAMES.mkdir(parents=True, exist_ok=True)
    except OSError:
        # If no one has ever named a namespace, a user may not create the folder, but may have its own /run.
        run("mount", "-t", "tmpfs", "tidelog-chaos", str(_NAMES.parent))
        _NAMES.mkdir()
        return
    run("mount", "-t", "tmpfs", "tidelog-chaos", str(_NAMES))


def _namespace(member: Member) -> str:
    return f"{member.kind[0]}{member.id}"


def _host(end: Member | str) -> str:
    if not isinstance(end, Member):
        return f"{_SUBNET}.{_CLIENTS_HOST}"
    return f"{_SUBNET}.{end.id if end.kind == 'controller' else _FIRST_NODE - 1 + end.id}"


def _neighbour(source: Member | str, verb: str, target: Member | str) -> None:
    where, device = ([], _BRIDGE) if source == CLIENTS else (["-n", _namespace_of(source)], "eth0")
    nowhere = ["lladdr", _NOWHERE, "nud", "permanent"] if verb == "replace" else []
    run("ip", *where, "neigh", verb, _host(target), "dev", device, *nowhere)


def _namespace_of(end: Member | str) -> str:
    assert isinstance(end, Member)
    return _namespace(end)
