"""A simulated cluster with transactions: producers, members of a group, readers, their faults, and their history.

The world's dice draw what clients do, so that a seed is a history.
"""

from __future__ import annotations

import random
from collections import Counter
from typing import Any

from raft_properties import PropertyViolatedError, require
from sim.cluster.cluster import Cluster
from sim.cluster.coordination import ShardCall
from sim.cluster.nemesis import Nemesis
from sim.cluster.replicas import SimulatedPartition
from sim.cluster.schedule import LEADER, Action, Schedule
from sim.cluster.serving import Key
from sim.transactions.clients import Client, GaveUpError, Reader, TransactionalProducer, Work, name_of
from sim.transactions.late_markers import LateMarkers
from sim.transactions.members import GROUP_SHARD, NOTHING, Transformer, note_fetched
from sim.transactions.memberships import GROUP, ClassicMembership, ConsumerMembership, Membership
from sim.transactions.schedule import INPUTS, OUTPUTS

from tidelog_chaos.history import TRANSACTIONS, Op, OpType
from tidelog_node.coordination.offsets_topic import OFFSETS_TOPIC
from tidelog_node.groups.messages import OffsetFetchGroup, TopicPartitions

_FIRST_CLIENT = 51
_TIMEOUT_MS = 800
_STEP_MS = 20
_STOPPING_MS = 3_000
_SETTLING_MS = 6_000
_MAX_PRODUCERS = 40
_AMBUSHES = (("kill", 1), ("pause", 0), ("isolate", 0), ("overtake", 1), ("bounce", 0))
_WRITERS = ("writer-0", "writer-1")
_TRANSFORMERS = ("transformer-0", "transformer-1", "transformer-2")


class TransactionWorld:
    """The clients of a cluster, from the end of its setup on."""

    def __init__(self, cluster: Cluster, schedule: Schedule) -> None:
        self.cluster = cluster
        self.world = cluster.world
        self.dice = random.Random(schedule.seed)
        self.timeout_ms = _TIMEOUT_MS
        self.share_of_version_2 = self.dice.choice([0, 0.5, 1, 1])
        self.world.stray_percent = self.dice.choice([0, 10, 30])
        self._uses_classic_protocol = self.dice.random() < 0.5
        self.history: list[Op] = []
        self.counts: Counter[str] = Counter()
        self.inputs = [key for key in cluster.keys if key[0] == INPUTS]
        self.outputs = [key for key in cluster.keys if key[0] == OUTPUTS]
        self._end_ms = schedule.end_ms
        self._values: Counter[Key] = Counter()
        self._next_client = _FIRST_CLIENT
        self._producers: list[TransactionalProducer] = []
        self._ambushes = 0
        self._is_over = False
        self._nemesis: Nemesis | None = None
        self._late_dice = random.Random(f"late markers of {schedule.seed}")
        self.late_markers = LateMarkers(self, self._late_dice, self._act)

    # What clients use

    @property
    def now_ns(self) -> int:
        """The true time in nanoseconds."""
        return self.world.now_us * 1_000

    def next_value(self, key: Key) -> int:
        """Return a value that the partition has not had."""
        self._values[key] += 1
        return self._values[key]

    def count_of(self, topic: str) -> int:
        """Return the number of partitions of a topic."""
        return sum(key[0] == topic for key in self.cluster.keys)

    def new_membership(self, number: int) -> Membership:
        """Return the membership of a new member."""
        if self._uses_classic_protocol:
            return ClassicMembership(INPUTS, len(self.inputs))
        topic_id = self.cluster.checker.metadata.latest.topics[INPUTS].topic_id
        return ConsumerMembership(f"member-{number}", INPUTS, topic_id)

    def stable_end(self, key: Key) -> int:
        """Return the last stable offset of a partition's leader, -1 without one."""
        partition = self.leader_replica(key)
        return -1 if partition is None else partition.log.last_stable_offset(partition.high_watermark)

    def write(self, process: int | str, kind: OpType, f: str, value: Any, **extra: Any) -> Op:
        """Add a line to the history."""
        op = Op(len(self.history), process, kind, f, value, self.now_ns, extra=extra)
        self.history.append(op)
        return op

    def annotate(self, f: str, value: Any) -> None:
        """Add a note about transactions to the history."""
        self.write(TRANSACTIONS, "info", f, value)

    def count(self, name: str, by: int = 1) -> None:
        """Count something that happened."""
        self.counts[name] += by

    def ended(self, producer: TransactionalProducer) -> None:
        """A producer instance has ended: another one takes its transactional id, until the faults are over."""
        if not self._is_over:
            delay_us = self.dice.choice([1, 50, 900]) * 1_000
            self.world.at(self.world.now_us + delay_us, self._start_unless_over, producer.transactional_id)

    def ambush(self, producer: TransactionalProducer) -> int:
        """Have a fault happen to a commit, if one was planned. Return the time in ms for which the producer stalls."""
        if not self._ambushes or self._is_over:
            return 0
        self._ambushes -= 1
        self.count("fault: ambushed commit")
        dice = self.dice.random()
        if dice < 0.25:
            # Longer than a session, shorter than the timeout of the transaction.
            return 600
        if dice < 0.5:
            self._stall(producer)
            return 0
        name, amount = self.dice.choice(_AMBUSHES)
        key = self.dice.choice([producer.shard, producer.shard, GROUP_SHARD, *self.outputs])
        span_ms = self.dice.choice([1, 100, 400, 700])
        action = Action(0, 0, name, LEADER, self.cluster.keys.index(key), span_ms, amount)
        self.world.at(self.world.now_us + self.dice.randrange(15_000), self._act, action)
        # The former leader leads again: its shards go on with the views that they have left.
        self.world.at(self.world.now_us + 600_000, self._act, Action(0, 0, "prefer"))
        return 0

    def _stall(self, producer: TransactionalProducer) -> None:
        """Pause a follower of a producer's shard, so that nothing is committed there. Then kill the leader, and maybe
        the producer."""
        shard = producer.shard
        registration = self.cluster.checker.metadata.latest.partition(*shard)
        followers = [] if registration is None else [n for n in registration.isr if n != registration.leader]
        if followers:
            follower = self.cluster.nodes[self.dice.choice(followers)]
            follower.pause(self.world.now_us + 150_000)
            kill = Action(0, 0, "kill", LEADER, self.cluster.keys.index(shard), 300, 1)
            at_us = self.world.now_us + 5_000 + self.dice.randrange(40_000)
            self.world.at(at_us, self._act, kill)
            if self.dice.random() < 0.6:
                self.world.at(at_us, self._end, producer)

    # The run

    def begin(self, nemesis: Nemesis) -> None:
        """Start the clients, and plan their faults."""
        self._nemesis = nemesis
        for name in (*_WRITERS, *_TRANSFORMERS):
            self._start(name)
        self._readers = [Reader(self, self._new_number(), from_replicas=each) for each in (False, True)]
        faults = [self._pause_client, self._kill_client, self._replace_client, self._plan_ambush]
        weights = [self.dice.choice([0, 1, 1, 3]) for _ in faults]
        if any(weights):
            for fault in self.dice.choices(faults, weights, k=self.dice.choice([6, 12, 25])):
                self.world.at(self.world.now_us + self.dice.randrange(self._end_ms) * 1_000, fault)
        if self._late_dice.random() < 0.5:
            for _ in range(self._late_dice.choice([3, 6, 12])):
                at_us = self.world.now_us + self._late_dice.randrange(self._end_ms) * 1_000
                self.world.at(at_us, self.late_markers.plan)

    def settle(self) -> None:
        """After the faults: wait until all transactions have ended, and all that is stable has been read."""
        self._is_over = True
        for reader in self._readers:
            reader.end_life()
        for producer in self._producers:
            producer.is_stopping = True
            producer.go_on()
            if self.dice.random() < 0.3:
                # Nobody but the coordinator ends what it leaves.
                self._end(producer)
        self._wait(lambda: not any(producer.is_up for producer in self._producers), _STOPPING_MS)
        for producer in self._producers:
            if producer.is_up:
                producer.end_life()
        # A transaction may have begun by the fastest clock, and times out by the slowest.
        clocks_ms = [node.wall_ms() for node in self.cluster.nodes.values()]
        settling_ms = _SETTLING_MS + max(clocks_ms) - min(clocks_ms)
        self._wait(lambda: not self._behind(), settling_ms)
        self.annotate("settled", {"limit_s": (_STOPPING_MS + settling_ms) / 1_000, "behind": self._behind()})
        auditor = _Auditor(self, self._new_number())
        finals = [Reader(self, self._new_number(), from_replicas=each) for each in (False, True)]
        self._wait(lambda: not auditor.is_up and all(reader.is_at_end() for reader in finals), _SETTLING_MS)
        require(not auditor.is_up, "StableOffsets", f"nobody tells the offsets of {GROUP}")
        for reader in finals:
            reader.end_life()

    def _wait(self, condition: Any, bound_ms: int) -> None:
        end_us = self.world.now_us + bound_ms * 1_000
        while not condition() and self.world.now_us < end_us:
            self.world.run_until(self.world.now_us + _STEP_MS * 1_000)

    def _behind(self) -> dict[str, list[int]]:
        """Return the last stable offset and the end of the partitions in which a transaction is open."""
        found = {}
        for key in self.inputs + self.outputs:
            end, stable = self.cluster.checker.truth(key).high_watermark, self.stable_end(key)
            partition = self.leader_replica(key)
            end = end if partition is None else max(end, partition.log.log_end_offset)
            if stable < end:
                found[name_of(key)] = [max(stable, 0), end]
        return found

    def leader_replica(self, key: Key) -> SimulatedPartition | None:
        registration = self.cluster.checker.metadata.latest.partition(*key)
        node = None if registration is None else self.cluster.nodes.get(registration.leader)
        return None if node is None or not node.is_up else node.partitions.get(key)

    # Faults of clients

    def _new_number(self) -> int:
        self._next_client += 1
        return self._next_client

    def _start(self, name: str) -> None:
        if len(self._producers) < _MAX_PRODUCERS:
            kind = Transformer if name in _TRANSFORMERS else TransactionalProducer
            self._producers.append(kind(self, self._new_number(), name))

    def _start_unless_over(self, name: str) -> None:
        if not self._is_over:
            self._start(name)

    def _alive(self) -> list[TransactionalProducer]:
        return [producer for producer in self._producers if producer.is_up]

    def _end(self, producer: TransactionalProducer) -> None:
        if producer.is_up:
            producer.end_life()

    def _pause_client(self) -> None:
        alive = self._alive()
        if alive and not self._is_over:
            self.count("fault: paused client")
            span_ms = self.dice.choice([50, 300, 600, 1_200])
            self.dice.choice(alive).pause(self.world.now_us + span_ms * 1_000)

    def _kill_client(self) -> None:
        alive = self._alive()
        if alive and not self._is_over:
            self.count("fault: killed client")
            self.dice.choice(alive).end_life()

    def _replace_client(self) -> None:
        """Start another producer with a transactional id; the older one may be alive."""
        if not self._is_over:
            self.count("fault: replaced client")
            self._start(self.dice.choice([*_WRITERS, *_TRANSFORMERS]))

    def _plan_ambush(self) -> None:
        self._ambushes += 3

    def _act(self, action: Action) -> None:
        if self._nemesis is not None and not self._is_over:
            self._nemesis.act(action)


class _Auditor(Client):
    """Reads the group's final offsets."""

    def __init__(self, transactions: TransactionWorld, number: int) -> None:
        super().__init__(transactions, number)
        self.begin(self._live())

    def _live(self) -> Work:
        final: dict[str, int | None] = {}
        for key in self.transactions.inputs:
            request = OffsetFetchGroup(GROUP, topics=(TopicPartitions(key[0], (key[1],)),), require_stable=True)
            try:
                response = yield from self.ask(GROUP_SHARD, "coordinate", ShardCall(OFFSETS_TOPIC, GROUP, request))
            except GaveUpError as gave_up:
                raise PropertyViolatedError("StableOffsets", f"nobody tells that of {key}: {gave_up.error}") from None
            offset = note_fetched(self.transactions, key, response)
            final[name_of(key)] = None if offset == NOTHING else offset
        self.transactions.annotate("ended", {"offsets": final})
