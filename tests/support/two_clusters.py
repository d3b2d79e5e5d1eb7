"""Two clusters in network namespaces on one bridge, and faults of both sides: for scripts of chaos that link or mirror.

Each node is in a namespace of its own; controllers and clients are on the bridge. A neighbour entry that leads nowhere
cuts one direction between two members.
"""

from __future__ import annotations

import contextlib
import random
import sys
import time
from collections import Counter
from collections.abc import Collection, Iterator, Mapping
from pathlib import Path
from typing import Final, Protocol

from tidelog.testing import LocalCluster
from tidelog.testing.process import Place
from tidelog_chaos.isolation import run

NODES: Final = 3
SOURCE, TARGET, MIRROR = "source", "target", "mirror"
Member = tuple[str, int]
"""A node, as its side, ``source`` or ``target``, and its id; or the process of a mirror, ``("mirror", 1)``."""
NODE_MEMBERS: Final = [(side, node) for side in (SOURCE, TARGET) for node in range(1, NODES + 1)]
SETTLED_S: Final = 120.0
_SUBNET, _BRIDGE, _CLIENTS = "10.214.0", "links", "10.214.0.254"
_NOWHERE: Final = "02:00:00:00:00:fe"
_CONFIG: Final = {"min.insync.replicas": "2", "replica.lag.time.max.ms": "3000", "default.replication.factor": "3"}
_FIRST_HOST: Final = {SOURCE: 10, TARGET: 20, MIRROR: 30}
_CONTROLLER_PORT: Final = {SOURCE: 9093, TARGET: 9193}
_NODE_FAULTS: Final = ("kill", "pause", "cut", "cut-link", "cut-cluster", "cut-one-way")
"""Faults of nodes. ``cut-link`` cuts from the other side, ``cut-cluster`` from the own side and from the controller."""
_MIRROR_FAULTS: Final = ("kill", "kill", "pause", "cut-source", "cut-target")


class Process(Protocol):
    """A process that can be killed and paused."""

    def start(self) -> None:
        """Start it, also after a kill."""

    def kill(self) -> None:
        """End it by SIGKILL."""

    def pause(self) -> None:
        """Stop it by SIGSTOP."""

    def resume(self) -> None:
        """Let it go on."""


def wrapper(member: Member) -> tuple[str, ...]:
    """Return the command that runs another command in a member's namespace, with the same process id."""
    return ("nsenter", f"--net=/run/netns/{_namespace(member)}", "--")


@contextlib.contextmanager
def network(members: Collection[Member]) -> Iterator[None]:
    """Join a namespace per member by a bridge, where the clients and the controllers are."""
    names = Path("/run/netns")
    names.mkdir(parents=True, exist_ok=True)
    run("mount", "-t", "tmpfs", "tidelog-links", str(names))
    run("ip", "link", "add", _BRIDGE, "type", "bridge")
    run("ip", "addr", "add", f"{_CLIENTS}/24", "dev", _BRIDGE)
    run("ip", "link", "set", _BRIDGE, "up")
    for member in members:
        inside, outside = _namespace(member), f"v{_namespace(member)}"
        run("ip", "netns", "add", inside)
        run("ip", "link", "add", outside, "type", "veth", "peer", "name", "eth0", "netns", inside)
        run("ip", "link", "set", outside, "master", _BRIDGE, "up")
        run("ip", "-n", inside, "addr", "add", f"{_host(member)}/24", "dev", "eth0")
        run("ip", "-n", inside, "link", "set", "eth0", "up")
        run("ip", "-n", inside, "link", "set", "lo", "up")
    yield


@contextlib.contextmanager
def cluster(side: str, folder: Path) -> Iterator[LocalCluster]:
    """Start one side's cluster, of a controller and three nodes."""

    def place(kind: str, node_id: int) -> Place:
        if kind == "controller":
            return Place(_CLIENTS, _CONTROLLER_PORT[side])
        member = side, node_id
        return Place(_host(member), 9094, wrapper(member), kafka_port=9092)

    started = LocalCluster(1, NODES, folder / side, _CONFIG, place=place)
    try:
        started.start()
        started.wait_ready(SETTLED_S)
        yield started
    finally:
        started.close()


class Nemesis:
    """Faults of all sides, at most one per side at a time, drawn from a seed.

    With ``mirror``, the process of a mirror is a side of its own.
    """

    def __init__(self, clusters: Mapping[str, LocalCluster], seed: int, mirror: Process | None = None) -> None:
        self._random = random.Random(seed)
        self._processes: dict[Member, Process] = {
            member: clusters[member[0]].nodes[member[1]] for member in NODE_MEMBERS
        }
        self._choices = [[SOURCE], [TARGET], [SOURCE, TARGET]]
        if mirror is not None:
            self._processes[MIRROR, 1] = mirror
            self._choices += [[MIRROR], [MIRROR, SOURCE], [MIRROR, TARGET]]
        self.counts: Counter[str] = Counter()
        """The number of faults, by kind and side."""
        self._cuts: Counter[tuple[Member, Member | None]] = Counter()

    def run(self, seconds: float) -> None:
        """Inject faults for so many seconds; all are over at the end."""
        ends_s = time.monotonic() + seconds
        while time.monotonic() < ends_s:
            faults = [self._begin(side) for side in self._random.choice(self._choices)]
            time.sleep(self._random.uniform(0.5, 3.5))
            for member, fault in faults:
                self._end(member, fault)
            time.sleep(self._random.uniform(0.2, 1.5))

    def _begin(self, side: str) -> tuple[Member, str]:
        member = side, 1 if side == MIRROR else self._random.randint(1, NODES)
        fault = self._random.choice(_MIRROR_FAULTS if side == MIRROR else _NODE_FAULTS)
        self.counts[f"{fault} {side}"] += 1
        match fault:
            case "kill":
                self._processes[member].kill()
            case "pause":
                self._processes[member].pause()
            case _:
                self._cut(member, fault, is_cut=True)
        return member, fault

    def _end(self, member: Member, fault: str) -> None:
        match fault:
            case "kill":
                self._processes[member].start()
            case "pause":
                self._processes[member].resume()
            case _:
                self._cut(member, fault, is_cut=False)

    def _cut(self, member: Member, fault: str, *, is_cut: bool) -> None:
        sides = {SOURCE, TARGET, MIRROR}
        match fault:
            case "cut-source" | "cut-target":
                sides = {fault.removeprefix("cut-")}
            case "cut-cluster":
                sides = {member[0]}
            case "cut-link":
                sides.remove(member[0])
        for other in self._processes:
            if other == member or other[0] not in sides:
                continue
            self._pass(member, other, is_cut=is_cut)
            if fault != "cut-one-way":
                self._pass(other, member, is_cut=is_cut)
        if fault in ("cut", "cut-cluster"):
            self._pass(member, None, is_cut=is_cut)

    def _pass(self, first: Member, second: Member | None, *, is_cut: bool) -> None:
        """Cut a direction, or pass packets again once no fault cuts it."""
        before = self._cuts[first, second]
        self._cuts[first, second] += 1 if is_cut else -1
        if not before or not self._cuts[first, second]:
            _cut(first, second, is_cut=is_cut)


def _cut(first: Member, second: Member | None, *, is_cut: bool) -> None:
    """Drop, or pass again, what a member sends to another, or to controllers and clients."""
    target = _CLIENTS if second is None else _host(second)
    nowhere = ["lladdr", _NOWHERE, "nud", "permanent"] if is_cut else []
    verb = "replace" if is_cut else "del"
    run("ip", "-n", _namespace(first), "neigh", verb, target, "dev", "eth0", *nowhere)


def _host(member: Member) -> str:
    side, node = member
    return f"{_SUBNET}.{_FIRST_HOST[side] + node}"


def _namespace(member: Member) -> str:
    side, node = member
    return f"{side[0]}{node}"


def print_logs(clusters: Mapping[str, LocalCluster]) -> None:
    """Write the ends of the nodes' logs to the standard error."""
    for side, each in clusters.items():
        for node in each.nodes.values():
            print(f"--- {side} {node.name}\n{node.log_path.read_text()[-6_000:]}", file=sys.stderr)
