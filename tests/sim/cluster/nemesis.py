"""Does the actions of a schedule to a simulated cluster: faults of all kinds, and what operators do meanwhile."""

from __future__ import annotations

import errno
import random
from pathlib import Path

from memory_disk import no_fault
from random_numbers import mix
from sim.cluster.cluster import Cluster
from sim.cluster.node import NodeProcess
from sim.cluster.schedule import ACTIVE, CONTROLLER, LEADER, Action
from sim.cluster.serving import Key
from sim.cluster.world import Noise, Process

from tidelog_foundation.requests.configs import (
    ConfigOperation,
    ConfigResourceChange,
    ConfigResourceName,
    ConfigResourceType,
    IncrementalAlterConfigsRequest,
)
from tidelog_foundation.requests.partitions import (
    AlterPartitionReassignmentsRequest,
    ElectionType,
    ElectLeadersRequest,
    ReassignablePartition,
    ReassignableTopic,
    TopicPartitions,
)


class _ForgetsAll(random.Random):
    """The least of everything: nothing that was not synced is left."""

    def randint(self, a: int, b: int) -> int:
        return a

    def random(self) -> float:
        return 1.0


class Nemesis:
    """One method per name of an action."""

    def __init__(self, cluster: Cluster) -> None:
        self.cluster = cluster
        self.world = cluster.world
        self.counts: dict[str, int] = {}
        self._is_over = False
        begin_us = self.world.now_us
        for node in cluster.nodes.values():
            node.on_crash = self._crash_in_operation
        for action in cluster.schedule.actions:
            self.world.at(begin_us + action.at_ms * 1000, self.act, action)
        self._planned: dict[int, Action] = {}

    def act(self, action: Action) -> None:
        """Do one action."""
        self.counts[action.name] = self.counts.get(action.name, 0) + 1
        getattr(self, f"_{action.name}")(action)

    def stop(self) -> None:
        """Undo all that lasts, and start what is down."""
        self._is_over = True
        self.world.heal()
        for node in self.cluster.nodes.values():
            node.files.fail = no_fault
            node.files.capacity = None
            node.files.crash_at = None
            if node.reboots_on_failure and node.is_up:
                node.fail()
            if not node.is_up:
                node.start()
        for controller in self.cluster.quorum.controllers.values():
            controller.stalled_until_us = 0
            if not controller.is_up:
                controller.start()

    def pick(self, action: Action) -> Process | None:
        """Return the process that an action means; None when nobody leads."""
        cluster = self.cluster
        if action.kind == LEADER:
            partition = cluster.checker.metadata.latest.partition(*self._key(action))
            return None if partition is None or partition.leader < 0 else cluster.nodes[partition.leader]
        if action.kind == ACTIVE:
            leader = cluster.quorum.leader_id()
            return None if leader is None else cluster.quorum.controllers[leader]
        processes: list[Process] = list(cluster.nodes.values())
        if action.kind == CONTROLLER:
            processes = list(cluster.quorum.controllers.values())
        return processes[action.target % len(processes)]

    def _key(self, action: Action) -> Key:
        return self.cluster.keys[action.target % len(self.cluster.keys)]

    def _end_us(self, action: Action) -> int:
        return self.world.now_us + action.span_ms * 1000

    def _kill(self, action: Action) -> None:
        process = self.pick(action)
        if isinstance(process, NodeProcess):
            if process.is_up:
                process.kill()
                self.world.at(self._end_us(action), process.start_again, process.life)
        elif process is not None and process.is_up:
            self._stop_controller(process.number, action.amount, action.span_ms)

    def _stop_controller(self, number: int, keep: int, span_ms: int) -> None:
        controller = self.cluster.quorum.controllers[number]
        controller.stop(keep)
        life = controller.life

        def start() -> None:
            if not controller.is_up and controller.life == life:
                controller.start()

        self.world.at(self.world.now_us + span_ms * 1000, start)

    def _power(self, action: Action) -> None:
        """A machine loses power, and with ``extra`` all that is not synced.

        Where the promise would be void by it only the process ends (see ``is_gentle``).
        """
        node = self.pick(action)
        if isinstance(node, NodeProcess) and node.is_up:
            if action.extra:
                node.lose_power(_ForgetsAll())
            else:
                self._lose_power(node, action.amount)
            self.world.at(self._end_us(action), node.start_again, node.life)

    def _lose_power(self, node: NodeProcess, dice: int) -> None:
        if self.cluster.topology.is_gentle and self._would_void(node.number):
            node.kill()
        else:
            node.lose_power(random.Random(dice), flips=dice % 3 == 0)
        self.world.note(node.number, dice)

    def _would_void(self, number: int) -> bool:
        checker = self.cluster.checker
        for topic, index, partition in checker.metadata.latest.partitions():
            members = {*partition.isr, *partition.eligible_leader_replicas}
            if members <= {*checker.truth((topic.name, index)).damaged, number}:
                return True
        return False

    def _blackout(self, action: Action) -> None:
        """All nodes lose power at once, each at its own place."""
        for number, node in self.cluster.nodes.items():
            if node.is_up:
                self._lose_power(node, mix(action.amount, number))
                again_us = self._end_us(action) + mix(action.amount, number, 1) % 50_000
                self.world.at(again_us, node.start_again, node.life)

    def _crash_at(self, action: Action) -> None:
        """The machine stops in the middle of one of its next operations with the disk."""
        node = self.pick(action)
        if isinstance(node, NodeProcess) and node.is_up:
            self._planned[node.number] = action
            node.files.crash_at = node.files.operations + action.extra

    def _crash_in_operation(self, node: NodeProcess) -> None:
        action = self._planned.pop(node.number)
        self._lose_power(node, action.amount)
        self.world.at(self._end_us(action), node.start_again, node.life)

    def _bounce(self, action: Action) -> None:
        """A controlled shutdown, and a start some time after."""
        node = self.pick(action)
        if isinstance(node, NodeProcess) and node.is_up:
            node.restarts_after_ms = action.span_ms
            node.enter(node.life, node.shut_down)

    def _pause(self, action: Action) -> None:
        process = self.pick(action)
        if process is not None and process.is_up:
            process.pause(self._end_us(action))

    def _cut(self, action: Action) -> None:
        """One link goes quiet in one direction, or in both."""
        process = self.pick(action)
        if process is None:
            return
        numbers = list(self.world.processes)
        other = numbers[(numbers.index(process.number) + action.amount) % len(numbers)]
        self.world.cut(process.number, other, self._end_us(action))
        if action.extra:
            self.world.cut(other, process.number, self._end_us(action))

    def _isolate(self, action: Action) -> None:
        """One process hears nobody (1), is heard by nobody (2), neither (0), or has the clients left alone (3)."""
        process = self.pick(action)
        if process is None:
            return
        clients = {p.number for p in (self.cluster.admin, *self.cluster.producers, *self.cluster.consumers)}
        for other in self.world.processes:
            if other == process.number or (action.amount == 3 and other in clients):
                continue
            if action.amount != 2:
                self.world.cut(other, process.number, self._end_us(action))
            if action.amount != 1:
                self.world.cut(process.number, other, self._end_us(action))

    def _overtake(self, action: Action) -> None:
        """A follower is cut off, and comes back to a leader that hands over while the follower is still behind."""
        leader, (topic, index) = self.pick(action), self._key(action)
        registration = self.cluster.checker.metadata.latest.partition(topic, index)
        if leader is None or registration is None:
            return
        followers = [number for number in registration.replicas if number != leader.number]
        if not followers:
            return
        number = followers[action.amount % len(followers)]
        for other in self.world.processes:
            if other != number:
                self.world.cut(other, number, self._end_us(action))
                self.world.cut(number, other, self._end_us(action))
        self.world.at(self._end_us(action) + action.extra * 1000, self._hand_over, action)

    def _hand_over(self, action: Action) -> None:
        node = self.pick(action)
        if isinstance(node, NodeProcess) and node.is_up and not self._is_over:
            node.restarts_after_ms = 100
            node.enter(node.life, node.shut_down)

    def _split(self, action: Action) -> None:
        """The bits of a number say who is on which side."""
        numbers = list(self.world.processes)
        for i, a in enumerate(numbers):
            for j, b in enumerate(numbers):
                if (action.amount >> i % 12) & 1 != (action.amount >> j % 12) & 1:
                    self.world.cut(a, b, self._end_us(action))

    def _noise(self, action: Action) -> None:
        """Messages, of all or of one process, are lost, late or doubled."""
        loss, slow, double = action.amount & 255, action.amount >> 8 & 255, action.amount >> 16
        process = self.pick(action)
        number = process.number if process is not None and action.target % 2 else 0
        self.world.noises.append(Noise(self._end_us(action), number, loss, slow, double, action.extra * 1000))

    def _stall(self, action: Action) -> None:
        """A controller's disk takes its time."""
        process = self.pick(action)
        assert process is not None
        self.cluster.quorum.controllers[process.number].stalled_until_us = self._end_us(action)

    def _clock(self, action: Action) -> None:
        process = self.pick(action)
        if process is not None:
            process.jump(action.amount)

    def _snapshot(self, action: Action) -> None:
        process = self.pick(action)
        if process is not None and process.is_up:
            self.cluster.quorum.controllers[process.number].take_snapshot(action.span_ms)

    def _disk_error(self, action: Action) -> None:
        """The disk of a node refuses: writes, flushes, or everything."""
        node = self.pick(action)
        if isinstance(node, NodeProcess) and node.is_up:
            is_gentle = self.cluster.topology.is_gentle
            operations = ("pwrite",) if is_gentle else (("pwrite",), ("fsync",), ())[action.amount]
            node.reboots_on_failure = operations != ("pwrite",)

            def fault(operation: str, _path: Path) -> int | None:
                return errno.EIO if not operations or operation in operations else None

            node.files.fail = fault

    def _disk_full(self, action: Action) -> None:
        node = self.pick(action)
        if isinstance(node, NodeProcess):
            node.files.capacity = action.amount
            self.world.at(self._end_us(action), self._make_room, node)

    def _make_room(self, node: NodeProcess) -> None:
        node.files.capacity = None

    def _reassign(self, action: Action) -> None:
        if self._is_over:
            return
        topic, index = self._key(action)
        numbers = sorted(self.cluster.nodes, key=lambda number: mix(action.amount, number))
        count = 1 + action.amount % 4
        item = ReassignablePartition(index, tuple(numbers[:count]) if action.amount % 5 else None)
        request = AlterPartitionReassignmentsRequest((ReassignableTopic(topic, (item,)),))
        self.cluster.admin.ask(self.cluster.controllers, "handle_alter_partition_reassignments", request)

    def _prefer(self, _action: Action) -> None:
        request = ElectLeadersRequest(all_partitions=True)
        self.cluster.admin.ask(self.cluster.controllers, "handle_elect_leaders", request)

    def _unclean(self, action: Action) -> None:
        self.elect_unclean(self._key(action))

    def elect_unclean(self, key: Key) -> None:
        """Give a partition that nobody leads any leader."""
        if self.cluster.topology.is_gentle and not self.cluster.checker.truth(key).was_void:
            return
        self.cluster.checker.metadata.asked_unclean.add(key)
        request = ElectLeadersRequest(ElectionType.UNCLEAN, (TopicPartitions(key[0], (key[1],)),))
        self.cluster.admin.ask(self.cluster.controllers, "handle_elect_leaders", request)

    def _min_isr(self, action: Action) -> None:
        topic, _ = self._key(action)
        resource = ConfigResourceName(ConfigResourceType.TOPIC, topic)
        operation = ConfigOperation("min.insync.replicas", value=str(action.amount))
        request = IncrementalAlterConfigsRequest((ConfigResourceChange(resource, (operation,)),))
        self.cluster.admin.ask(self.cluster.controllers, "handle_incremental_alter_configs", request)

    def _delete(self, action: Action) -> None:
        """Delete everything, or the first half, quarter ... of what is committed."""
        key = self._key(action)
        truth = self.cluster.checker.truth(key)
        truth.deletes = True
        offset = -1 if action.amount == -1 else truth.high_watermark // action.amount
        self.cluster.admin.delete_records(key, offset)
