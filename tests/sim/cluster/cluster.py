"""A whole cluster of a schedule in simulated time: controllers, nodes, clients, and the checker that sees them all."""

from __future__ import annotations

from collections.abc import Callable

from raft_properties import PropertyViolatedError
from sim.cluster.checker import Checker
from sim.cluster.clients import Administrator
from sim.cluster.consumers import Consumer
from sim.cluster.controllers import Quorum, start_quorum
from sim.cluster.node import NodeProcess
from sim.cluster.producers import Load, Producer
from sim.cluster.schedule import Schedule, TopicPlan
from sim.cluster.serving import Key
from sim.cluster.standing import CLUSTER
from sim.cluster.watchers import Watcher
from sim.cluster.world import World

from tidelog_foundation.requests.configs import ConfigEntry
from tidelog_foundation.requests.topics import CreatableTopic, CreateTopicsRequest
from tidelog_quorum.controller.config import ControllerConfig

FIRST_NODE = 11
FIRST_CLIENT = 31
_SETUP_BOUND_MS = 6_000
_STEP_MS = 20


class Cluster:
    """Running from the start, whole when it is made: its topics are there, all replicas in sync."""

    def __init__(self, schedule: Schedule, *, check_every: int = 1) -> None:
        topology = self.topology = schedule.topology
        self.schedule = schedule
        self.world = World(schedule.seed)
        self.checker = Checker(topology)
        config = ControllerConfig(
            CLUSTER,
            topology.session_ms,
            min_insync_replicas=topology.min_isr,
            leader_imbalance_check_interval_seconds=1,
        )
        self.controllers = list(range(1, topology.controllers + 1))
        clocks = iter(topology.clocks)
        self.quorum: Quorum = start_quorum(
            self.world,
            clocks,
            topology.controllers,
            topology.raft,
            config,
            self.checker,
            topology.uses_elr,
            check_every * 8,
        )
        self.nodes: dict[int, NodeProcess] = self.checker.nodes
        for number in range(FIRST_NODE, FIRST_NODE + topology.nodes):
            node = NodeProcess(
                self.world, number, next(clocks), topology, self.checker, self.controllers, check_every == 1
            )
            self.nodes[number] = node
            node.start()
        self.admin = Administrator(self.world, FIRST_CLIENT, (0, 1000), self.checker, list(self.nodes))
        self._set_up()
        self.keys: list[Key] = [(t.name, i) for t in topology.topics for i in range(t.partitions)]
        for plan in topology.topics:
            if "retention.bytes" in dict(plan.configs):
                for index in range(plan.partitions):
                    self.checker.truth((plan.name, index)).deletes = True
        self.producers: list[Producer] = []
        self.consumers: list[Consumer] = []
        self._start_clients()

    def wait(self, condition: Callable[[], bool], bound_ms: int, name: str, describe: Callable[[], str]) -> None:
        """Let time pass until a condition holds; a bound that is reached is a violation."""
        end_us = self.world.now_us + bound_ms * 1000
        while not condition():
            if self.world.now_us >= end_us:
                raise PropertyViolatedError(name, f"not within {bound_ms} ms: {describe()}")
            self.world.run_until(self.world.now_us + _STEP_MS * 1000)

    def is_whole(self) -> bool:
        """Return whether every partition has a leader and all its replicas in sync in the newest metadata."""
        image = self.checker.metadata.latest
        return all(p.leader >= 0 and set(p.isr) == set(p.replicas) for _, _, p in image.partitions())

    def describe(self) -> str:
        """Say how things stand, for people."""
        image = self.checker.metadata.latest
        lines = [f"controller {self.quorum.leader_id()} leads, metadata {image.offset}"]
        lines += [
            f"{b.broker_id}: fenced {b.fenced}, stopping {b.in_controlled_shutdown}" for b in image.brokers.values()
        ]
        min_insync = self.checker.metadata.min_insync
        lines += [f"{t.name}-{i}: {p}, at least {min_insync(t.name)} in sync" for t, i, p in image.partitions()]
        for number, node in self.nodes.items():
            ends = {
                f"{k[0]}-{k[1]}": (p.log.log_start_offset, p.log.log_end_offset, p.high_watermark, p.state.leader_epoch)
                for k, p in node.partitions.items()
            }
            offline = [key for key, _ in node.replicas.hosted.offline_states()]
            lines.append(f"{number} up {node.is_up} at {node.replicas.applied.offset}: {ends} offline {offline}")
        return "; ".join(lines)

    def _set_up(self) -> None:
        image = self.checker.metadata

        def is_ready() -> bool:
            return sum(b.is_active for b in image.latest.brokers.values()) == self.topology.nodes

        self.wait(is_ready, _SETUP_BOUND_MS, "SetUp", self.describe)
        request = CreateTopicsRequest(topics=tuple(_new_topic(plan) for plan in self.topology.topics))
        self.admin.ask(self.controllers, "handle_create_topics", request)
        count = len(self.topology.topics)

        def is_created() -> bool:
            return len(image.latest.topics) == count and self.is_whole() and self._all_lead()

        self.wait(is_created, _SETUP_BOUND_MS, "SetUp", self.describe)

    def _all_lead(self) -> bool:
        return all(
            (partition := self.nodes[p.leader].partitions.get((topic.name, index))) is not None
            and partition.state.leader is not None
            for topic, index, p in self.checker.metadata.latest.partitions()
        )

    def _start_clients(self) -> None:
        topology, nodes, keys = self.topology, list(self.nodes), self.keys
        number = FIRST_CLIENT + 1
        count = topology.producers + topology.has_unsafe_producer
        for i in range(count):
            acks = -1 if i < topology.producers else i % 2
            load = Load(
                topology.batches // topology.producers,
                topology.every_ms * topology.producers,
                topology.max_in_flight,
                acks,
                topology.message_timeout_ms,
            )
            clock = topology.clocks[12 + i]
            self.producers.append(Producer(self.world, number, clock, self.checker, nodes, keys, load))
            number += 1
        Watcher(self.world, number, topology.clocks[18], self.checker, nodes, keys)
        number += 1
        for i in range(topology.consumers):
            from_replicas = topology.from_replicas and i == 0
            clock = topology.clocks[16 + i]
            self.consumers.append(Consumer(self.world, number, clock, self.checker, nodes, keys, from_replicas))
            number += 1


def _new_topic(plan: TopicPlan) -> CreatableTopic:
    configs = tuple(ConfigEntry(name, value) for name, value in plan.configs)
    return CreatableTopic(plan.name, plan.partitions, plan.replicas, configs=tuple(configs))
