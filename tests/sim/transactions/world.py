"""The whole simulation of transactions: brokers, clients and their history, and the faults.

The world's dice draw everything, so that a seed is a history.
"""

from __future__ import annotations

import random
from collections import Counter
from typing import Any

from sim.cluster.world import Noise, World
from sim.transactions.brokers import Broker
from sim.transactions.clients import Reader, TransactionalProducer, polled
from sim.transactions.coordinators import StateLog
from sim.transactions.offsets import NOTHING, GroupOffsets, name_of
from sim.transactions.partitions import Key, SimulatedPartition

from tidelog_chaos.history import TRANSACTIONS, Op, OpType
from tidelog_node.transactions.markers import NO_LEADER

_BROKERS = (1, 2, 3)
_FIRST_CLIENT = 11
_FAULTS_MS = 3_000
_REPLICATE_MS = 4
_TIMEOUT_MS = 800
_MARGIN_MS = 1_500
_MAX_PRODUCERS = 40


class TransactionWorld(World):
    """Three brokers with five partitions, one of the offsets and two of __transaction_state."""

    def __init__(self, seed: int, *, checks_invariants: bool = True) -> None:
        super().__init__(seed)
        self.dice = random.Random(seed)
        self.checks_invariants = checks_invariants
        self.timeout_ms = _TIMEOUT_MS
        self.share_of_version_2 = self.dice.choice([0, 0.5, 1, 1])
        self.share_of_strays = self.dice.choice([0, 0.05, 0.2])
        self.history: list[Op] = []
        self.counts: Counter[str] = Counter()
        self.inputs: list[Key] = [("in", 0), ("in", 1)]
        self.outputs: list[Key] = [("out", 0), ("out", 1), ("out", 2)]
        names = [*self.inputs, *self.outputs, ("__consumer_offsets", 0)]
        self.partitions = {key: SimulatedPartition(key, _BROKERS[i % 3]) for i, key in enumerate(names)}
        self.offsets = GroupOffsets(self.partitions[names[-1]])
        self._values: Counter[Key] = Counter()
        self._producer_ids = 1_000
        self._brokers = {number: Broker(self, number) for number in _BROKERS}
        self._state_logs = [StateLog(number) for number in _BROKERS[:2]]
        for key, partition in self.partitions.items():
            self._brokers[partition.leader].led[key] = partition.epoch
        for index, log in enumerate(self._state_logs):
            self._brokers[log.leader].markers.lead(index, log)
        self._next_client = _FIRST_CLIENT
        self._slots: dict[str, Key | None] = {"writer-0": None, "writer-1": None}
        self._slots |= {f"transformer-{index}": key for index, key in enumerate(self.inputs)}
        self._producers: list[TransactionalProducer] = []
        self._ambushes = 0
        self._known_leaders: dict[Key, int] = {}
        """The former leaders of partitions whose move is not known yet."""
        self._faults = self._draw_faults()
        self.at(0, self._replicate)

    # The cluster as all processes know it

    @property
    def now_ns(self) -> int:
        """The true time in nanoseconds."""
        return self.now_us * 1_000

    def new_producer_id(self) -> int:
        """Return a producer id that nobody has."""
        self._producer_ids += 1
        return self._producer_ids

    def next_value(self, key: Key) -> int:
        """Return a value that the partition has not had."""
        self._values[key] += 1
        return self._values[key]

    def coordinator_of(self, transactional_id: str) -> tuple[int, Broker]:
        """Return the shard of a transactional id, and the broker that leads it."""
        index = sum(transactional_id.encode()) % len(self._state_logs)
        return index, self._brokers[self._state_logs[index].leader]

    def broker_of(self, key: Key) -> Broker:
        """Return the broker that leads a partition."""
        return self._brokers[self.partitions[key].leader]

    def leader_of(self, key: Key) -> int | None:
        """Return the number of the broker that leads a partition, as far as brokers know."""
        leader = self._known_leaders.get(key, self.partitions[key].leader)
        return leader if self._brokers[leader].is_up else NO_LEADER

    def stray(self, number: int, handler: str, request: Any) -> None:
        """Let a request reach a broker late, over a connection that the sender has given up."""
        self.count("stray requests")
        delay_us = self.dice.choice([30, 100, 400]) * 1_000
        self.at(self.now_us + delay_us, self._deliver_stray, number, handler, request)

    def _deliver_stray(self, number: int, handler: str, request: Any) -> None:
        broker = self._brokers[number]
        broker.enter(broker.life, getattr(broker, handler), request, lambda _: None)

    # The history

    def write(self, process: int | str, kind: OpType, f: str, value: Any, **extra: Any) -> Op:
        """Add a line to the history."""
        op = Op(len(self.history), process, kind, f, value, self.now_ns, extra=extra)
        self.history.append(op)
        return op

    def annotate(self, f: str, value: Any) -> None:
        """Add a note about transactions to the history."""
        self.write(TRANSACTIONS, "info", f, value)

    def count(self, name: str) -> None:
        """Count something that happened."""
        self.counts[name] += 1

    # The run

    def run(self) -> list[Op]:
        """Run to the end, and return the history."""
        for name in self._slots:
            self._start_producer(name)
        for from_follower in (False, True):
            Reader(self, self._new_number(), from_follower=from_follower)
        for at_ms, fault in self._faults:
            self.at(at_ms * 1_000, fault)
        self.run_until(_FAULTS_MS * 1_000)
        self._heal()
        self._settle()
        self._read_everything()
        return self.history

    def _draw_faults(self) -> list[tuple[int, Any]]:
        faults = [
            self._move_partition,
            self._move_shard,
            self._pause_client,
            self._pause_broker,
            self._replace_producer,
            self._kill_producer,
            self._disturb,
            self._bounce_broker,
            self._plan_ambush,
        ]
        weights = [self.dice.choice([0, 1, 1, 3]) for _ in faults]
        if not any(weights):
            return []
        count = self.dice.choice([0, 10, 25, 50])
        chosen = self.dice.choices(faults, weights, k=count)
        return [(self.dice.randrange(_FAULTS_MS), fault) for fault in chosen]

    def _heal(self) -> None:
        self.heal()
        for process in self.processes.values():
            if isinstance(process, Broker):
                process.paused_until_us = min(process.paused_until_us, self.now_us + 1_000)
                self.at(self.now_us + 1_000, process._resume, process.life)
        for producer in self._producers:
            if producer.is_up:
                producer.is_stopping = True

    def _settle(self) -> None:
        """Wait until all transactions have ended, as long as that may take."""
        end_us = self.now_us + (_TIMEOUT_MS + _MARGIN_MS) * 1_000
        self.run_until(self.now_us + _MARGIN_MS * 1_000)
        for producer in self._producers:
            if producer.is_up:
                producer.end_life()
        while (behind := self._behind()) and self.now_us < end_us + _MARGIN_MS * 1_000:
            self.run_until(self.now_us + 20_000)
        self.annotate("settled", {"limit_s": (_TIMEOUT_MS + 2 * _MARGIN_MS) / 1_000, "behind": behind})
        found = {name_of(key): self.offsets.stable_offset(key) for key in self.inputs}
        final = {
            name: offset if isinstance(offset, int) and offset != NOTHING else None for name, offset in found.items()
        }
        self.annotate("ended", {"offsets": final})

    def _behind(self) -> dict[str, list[int]]:
        return {
            name_of(key): [partition.last_stable_offset, partition.log.log_end_offset]
            for key, partition in self.partitions.items()
            if partition.last_stable_offset < partition.log.log_end_offset
        }

    def _read_everything(self) -> None:
        process = self._new_number()
        for key in self.inputs + self.outputs:
            partition, at = self.partitions[key], 0
            while at < partition.last_stable_offset:
                found, at = partition.read(at, is_read_committed=True)
                self.write(process, "invoke", "poll", [["poll"]])
                self.write(process, "ok", "poll", polled(key, found))
                self.counts["read"] += len(found)

    def _replicate(self) -> None:
        for partition in self.partitions.values():
            if self.dice.random() < 0.5:
                partition.replicate(self.now_ms)
        self.at(self.now_us + _REPLICATE_MS * 1_000, self._replicate)

    # Faults

    def _new_number(self) -> int:
        self._next_client += 1
        return self._next_client

    def _start_producer(self, name: str) -> None:
        if len(self._producers) < _MAX_PRODUCERS:
            producer = TransactionalProducer(self, self._new_number(), name, self._slots[name])
            self._producers.append(producer)

    def _replace_producer(self) -> None:
        """Start another producer with a transactional id; the older one may be alive."""
        self.count("fault: replaced producer")
        self._start_producer(self.dice.choice(list(self._slots)))

    def _kill_producer(self) -> None:
        alive = [producer for producer in self._producers if producer.is_up]
        if alive:
            self.count("fault: killed producer")
            producer = self.dice.choice(alive)
            producer.end_life()
            delay_us = self.dice.choice([1, 50, 900]) * 1_000
            self.at(self.now_us + delay_us, self._start_producer, producer.transactional_id)

    def _pause_client(self) -> None:
        alive = [producer for producer in self._producers if producer.is_up]
        if alive:
            self.count("fault: paused producer")
            span_ms = self.dice.choice([50, 300, 1_200])
            self.dice.choice(alive).pause(self.now_us + span_ms * 1_000)

    def _pause_broker(self) -> None:
        self.count("fault: paused broker")
        broker = self._brokers[self.dice.choice(_BROKERS)]
        broker.pause(self.now_us + self.dice.choice([30, 200, 600]) * 1_000)
        if self.dice.random() < 0.5:
            self._move_away(broker, knows=False)

    def _bounce_broker(self) -> None:
        self.count("fault: bounced broker")
        broker = self._brokers[self.dice.choice(_BROKERS)]
        if broker.is_up and all(other.is_up for other in self._brokers.values()):
            broker.kill()
            self._move_away(broker, knows=False)
            self.at(self.now_us + self.dice.choice([10, 200]) * 1_000, broker.start)

    def _disturb(self) -> None:
        self.count("fault: disturbed network")
        loss, slow = self.dice.choice([0, 5, 20]), self.dice.choice([5, 20])
        late_us = self.dice.choice([20, 120]) * 1_000
        self.noises.append(Noise(self.now_us + 400_000, 0, loss, slow, 0, late_us))

    def _move_partition(self) -> None:
        self.count("fault: moved partition")
        self._lead(self.dice.choice(list(self.partitions)), self.dice.choice(_BROKERS), knows=self.dice.random() < 0.5)

    def _move_shard(self) -> None:
        self.count("fault: moved shard")
        index = self.dice.randrange(len(self._state_logs))
        self._lead_shard(index, self.dice.choice(_BROKERS), knows=self.dice.random() < 0.5)

    def _plan_ambush(self) -> None:
        self._ambushes += 2

    def ambush(self, producer: TransactionalProducer) -> None:
        """Have a fault happen while a producer's commit is under way, if one was planned."""
        if self._ambushes:
            self._ambushes -= 1
            self.count("fault: ambushed commit")
            if self.dice.random() < 0.4:
                self._stall(producer)
            else:
                self.at(self.now_us + self.dice.randrange(60_000), self._strike, producer)

    def _stall(self, producer: TransactionalProducer) -> None:
        """Pause a broker, so that a shard commits nothing and some partitions do not answer. Then move the shard."""
        index, coordinator = self.coordinator_of(producer.transactional_id)
        log = self._state_logs[index]
        others = [broker for broker in self._brokers.values() if broker is not coordinator and broker.is_up]
        paused = self.dice.choice(others)
        paused.pause(self.now_us + 300_000)
        log.stalled_until_us = self.now_us + 300_000
        self.at(self.now_us + 100_000, self._strike, producer, paused)

    def _strike(self, producer: TransactionalProducer, besides: Broker | None = None) -> None:
        """Move the coordinator of a producer, and maybe kill the producer, or move a partition."""
        index, _ = self.coordinator_of(producer.transactional_id)
        if besides is not None or self.dice.random() < 0.7:
            candidates = [number for number in _BROKERS if besides is None or number != besides.number]
            self._lead_shard(index, self.dice.choice(candidates), knows=self.dice.random() < 0.5)
        if besides is not None:
            self._move_away(besides, knows=False)
        elif self.dice.random() < 0.7:
            self._lead(self.dice.choice(list(self.partitions)), self.dice.choice(_BROKERS), knows=True)
        if self.dice.random() < 0.5 and producer.is_up:
            producer.end_life()
            self._start_producer(producer.transactional_id)

    def _move_away(self, broker: Broker, *, knows: bool) -> None:
        others = [other.number for other in self._brokers.values() if other.is_up and other is not broker]
        for key, partition in self.partitions.items():
            if partition.leader == broker.number:
                self._lead(key, self.dice.choice(others), knows=knows)
        for index, log in enumerate(self._state_logs):
            if log.leader == broker.number:
                self._lead_shard(index, self.dice.choice(others), knows=knows)

    def _lead(self, key: Key, number: int, *, knows: bool) -> None:
        """Let a broker lead a partition; the former leader may not know."""
        partition, broker = self.partitions[key], self._brokers[number]
        if not broker.is_up:
            return
        if knows:
            self._brokers[partition.leader].led.pop(key, None)
        self._known_leaders.setdefault(key, partition.leader)
        self.at(self.now_us + self.dice.choice([1, 30, 100]) * 1_000, self._known_leaders.pop, key, None)
        partition.change_leader(number)
        broker.led[key] = partition.epoch

    def _lead_shard(self, index: int, number: int, *, knows: bool) -> None:
        log, broker = self._state_logs[index], self._brokers[number]
        if not broker.is_up:
            return
        former = self._brokers[log.leader]
        if former.is_up and self.share_of_strays:
            for request in former.markers.strays(index):
                self.stray(request.node_id, "write_markers", request)
        if knows and former.is_up:
            former.markers.resign(index)
        log.change_leader(number, self.dice.randrange(len(log.appended) + 1))
        broker.markers.lead(index, log)
