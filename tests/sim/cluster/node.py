"""A node: the real partitions on the real log directory on a disk in memory, and a small shell around them.

The shell does what ``Node`` and its parts do, with the same order of effects; where they await, it is called back. A
start: the directory is locked and recovered, the node registers, and only an image with its own registration is
applied; then it serves.
"""

from __future__ import annotations

import contextlib
import random
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, cast

from memory_disk import MachineCrashed, MemoryFiles, no_fault
from sim.cluster.controller_calls import ControllerCalls
from sim.cluster.coordination import Coordination, ShardCall
from sim.cluster.fetchers import Fetchers
from sim.cluster.following import Following
from sim.cluster.handlers import Handlers
from sim.cluster.isr_changes import IsrChanges
from sim.cluster.replicas import LOG_DIR, Replicas, SimulatedPartition
from sim.cluster.serving import Key, Produce, delete_records, produce, unknown_partition
from sim.cluster.shards import SimulatedView
from sim.cluster.standing import CLUSTER, Standing
from sim.cluster.world import OnAnswer, Process, World, rack_of

from tidelog_foundation.errors import TidelogError
from tidelog_foundation.ids import BrokerEpoch, BrokerId, LeaderEpoch
from tidelog_foundation.requests.brokers import AllocateProducerIdsRequest
from tidelog_node.broker.lifecycle import ShutdownRequested
from tidelog_node.hosting.events import LeaderFollowed, LeaderUnfollowed
from tidelog_node.partitions.partition import Partition
from tidelog_node.partitions.replica_events import append_refused, key_of, replica_refused
from tidelog_node.replication.commands import ProposeIsr
from tidelog_node.transactions.markers import MarkersRequest
from tidelog_node.transactions.verification import VerificationRequest

if TYPE_CHECKING:
    from sim.cluster.checker import Checker
    from sim.cluster.controllers import ControllerProcess
    from sim.cluster.schedule import Topology

_SHUT_DOWN_MS = 2_000
_DISK_WORKS_AGAIN_MS = 300


class NodeProcess(Process):
    """One node, which is its partitions' clock and effects. Its parts are made anew by each :meth:`start`."""

    replicas: Replicas
    standing: Standing
    following: Following
    fetchers: Fetchers
    handlers: Handlers
    calls: ControllerCalls
    coordination: Coordination

    def __init__(
        self,
        world: World,
        number: int,
        clock: tuple[int, int],
        topology: Topology,
        checker: Checker,
        controllers: list[int],
        checks_invariants: bool,
    ) -> None:
        super().__init__(world, number, *clock)
        self.topology = topology
        self.checker = checker
        self.controllers = controllers
        self.checks_invariants = checks_invariants
        self.files = MemoryFiles()
        self.files.write_bytes(LOG_DIR / "meta.properties", _properties(number))
        self.restarts_after_ms: int | None = None
        self.reboots_on_failure = False
        self._view = SimulatedView(LOG_DIR)
        self.on_crash: Callable[[NodeProcess], None] = lambda _: None
        self._producer_ids = range(0)

    @property
    def identity(self) -> BrokerId:
        """The node's id as the cluster knows it."""
        return BrokerId(self.number)

    @property
    def rack(self) -> str:
        """The node's rack."""
        return rack_of(self.number)

    @property
    def broker_epoch(self) -> BrokerEpoch:
        """The broker epoch of this life's registration, -1 before it."""
        return self.standing.lifecycle.broker_epoch

    @property
    def is_serving(self) -> bool:
        """True if this life answers clients."""
        return self.standing.lifecycle.is_serving

    @property
    def partitions(self) -> dict[Key, SimulatedPartition]:
        """The replicas that are open."""
        return self.replicas.partitions

    def start(self) -> None:
        """Begin a life with what the disk holds; a disk that refuses ends it at once."""
        self.begin_life()
        self._producer_ids = range(0)
        self.files.now_ms = self.wall_ms()
        self.calls = ControllerCalls(self, self.controllers, self.number % len(self.controllers))
        self.handlers = Handlers(self)
        self.fetchers = Fetchers(self)
        self._isr_changes = IsrChanges(self)
        self.standing = Standing(self)
        self.following = Following(self)
        try:
            self.replicas = Replicas(self)
        except MachineCrashed:
            self.crashed()
        except TidelogError:
            self.fail()
        else:
            self.coordination = Coordination(self, self._view)
            self.standing.begin()
            self.following.begin()
            self.replicas.begin()
            if self.topology.coordinates:
                self.coordination.begin()

    def end_life(self) -> None:
        """Be down: the controllers hear that the connection is gone."""
        super().end_life()
        for number in self.controllers:
            controller = cast("ControllerProcess", self.world.processes[number])
            self.world.send(self.number, number, controller.connection_broke, self.number)

    def kill(self) -> None:
        """SIGKILL: what was written to files is still there."""
        if self.is_up:
            self.end_life()
            self.files.kill()
            self.checker.note_stopped(self)

    def lose_power(self, rng: random.Random, *, flips: bool = False) -> None:
        """The machine stops: what was not synced may be gone, or wrong in a bit where it ``flips``."""
        if self.is_up:
            self.end_life()
            self.files.crash(rng, ".log" if flips else None)
            self.checker.note_stopped(self)
            self.checker.note_damaged(self.number)

    def crashed(self) -> None:
        """The planned crash in the middle of an operation of the disk."""
        self.on_crash(self)

    def fail(self) -> None:
        """The disk has failed: the process ends, and is started again when the disk works.

        Where a flush may have failed the machine is too: what it could not write is in no file then, although readers
        saw it until then.
        """
        if self.reboots_on_failure:
            self.lose_power(random.Random(self.world.seed))
        else:
            self.kill()
        self.reboots_on_failure = False
        self.files.fail = no_fault
        self.world.at(self.world.now_us + _DISK_WORKS_AGAIN_MS * 1000, self.start_again, self.life)

    def start_again(self, life: int) -> None:
        """Start unless somebody else has."""
        if not self.is_up and self.life == life:
            self.start()

    def shut_down(self) -> None:
        """Begin a controlled shutdown, which waits for replicas that could take this node's place."""
        self.standing.step(ShutdownRequested(_SHUT_DOWN_MS, may_wait=True))

    def stop_cleanly(self) -> None:
        """End what is under way and close the logs; a disk that refuses makes it an unclean stop."""
        with contextlib.suppress(TidelogError):
            self.replicas.close()
        self.kill()
        if self.restarts_after_ms is not None:
            self.world.at(self.world.now_us + self.restarts_after_ms * 1000, self.start_again, self.life)

    def partition(self, key: Key) -> SimulatedPartition:
        """Return a partition that this node holds and serves; raises as the handlers do."""
        partition = self.partitions.get(key) if self.is_serving else None
        if partition is not None:
            return partition
        self.replicas.hosted.check_online(key)
        raise unknown_partition(self, key)

    def produce(self, request: Produce, answer: OnAnswer) -> None:
        """See :func:`serving.produce`."""
        produce(self, request, answer)

    def read(self, request: tuple[str, Any], answer: OnAnswer) -> None:
        """Handle a request of a reader: the handler's name and its message; nobody listens before it serves."""
        if self.is_serving:
            self.handlers.handle(*request, answer)
        else:
            answer(None)

    def coordinate(self, request: ShardCall, answer: OnAnswer) -> None:
        """Handle a request for the shard of a group or of a transactional id; nobody listens before it serves."""
        if self.is_serving:
            self.coordination.call(request, answer)
        else:
            answer(None)

    def answer_questions(self, request: VerificationRequest, answer: OnAnswer) -> None:
        """Handle the questions of a leader about transactions."""
        self.coordination.answer_questions(request, answer)

    def write_markers(self, request: MarkersRequest, answer: OnAnswer) -> None:
        """Handle the markers of a coordinator."""
        self.coordination.write_markers(request, answer)

    def delete_records(self, request: tuple[Key, int], answer: OnAnswer) -> None:
        """See :func:`serving.delete_records`."""
        delete_records(self, request, answer)

    def describe(self, _request: None, answer: OnAnswer) -> None:
        """Answer with (leader, leader epoch, replicas) of every partition, as this node knows; None until it serves."""
        partitions = self.replicas.applied.partitions()
        known = {(topic.name, i): (p.leader, p.leader_epoch, p.replicas) for topic, i, p in partitions}
        answer(known if self.is_serving else None)

    def init_producer_id(self, _request: None, answer: OnAnswer) -> None:
        """Answer with an id of this node's block, which comes from the controllers."""
        if len(self._producer_ids):
            producer_id, self._producer_ids = self._producer_ids[0], self._producer_ids[1:]
            answer(producer_id)
            return

        def take(response: Any) -> None:
            if isinstance(response, TidelogError):
                answer(None)
            else:
                start = response.producer_id_start
                self._producer_ids = range(start + 1, start + response.producer_id_len)
                answer(start)

        request = AllocateProducerIdsRequest(broker_id=self.number, broker_epoch=self.broker_epoch)
        self.calls.ask("handle_allocate_producer_ids", request, take, 800)

    def propose_isr(self, partition: Partition, proposal: ProposeIsr) -> None:
        """Send a proposal to the controller."""
        assert isinstance(partition, SimulatedPartition)
        self._isr_changes.submit(partition, proposal)

    def start_fetching(self, partition: Partition, leader_id: BrokerId, leader_epoch: LeaderEpoch) -> None:
        """Take note that a partition follows a leader."""
        if self.replicas.is_held(partition):
            self.replicas.feed(LeaderFollowed(key_of(partition), leader_id, leader_epoch))

    def stop_fetching(self, partition: Partition) -> None:
        """Take note that a partition follows nobody."""
        if self.replicas.is_held(partition):
            self.replicas.feed(LeaderUnfollowed(key_of(partition)))

    def storage_failed(self, partition: Partition, error: TidelogError) -> None:
        """A log cannot be used."""
        self.replicas.feed(replica_refused(partition, error, is_hosted=self.replicas.is_held(partition)))

    def disk_is_full(self, partition: Partition, error: TidelogError) -> None:
        """A log cannot grow, but is as it was."""
        if self.replicas.is_held(partition):
            self.replicas.feed(append_refused(partition, error))


def _properties(number: int) -> bytes:
    directory_id = f"directory{number:09}0000"
    return f"cluster.id={CLUSTER}\ndirectory.id={directory_id}\nnode.id={number}\nversion=1\n".encode()
