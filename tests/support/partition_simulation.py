"""Three replicas of one partition under faults, in one thread with a seeded order of events.

The nodes are the real pure cores over an in-memory log with epochs; the controller is a small model. Messages arrive in
any order and may be lost and duplicated. Nodes crash, also with the loss of unsynced data. Leaders change while clients
continue to write to the old one.
"""

import random

from partition_model import NODES, Controller, Node

from tidelog_foundation.errors import ErrorCode, TidelogError
from tidelog_node.replication import PartitionState, find_divergence
from tidelog_node.replication.commands import (
    AdvanceHighWatermark,
    AssignEpochStart,
    LeadershipLost,
    ProposeIsr,
    RestartLogAt,
    StartFetching,
    StopFetching,
    TruncateTo,
)
from tidelog_node.replication.events import (
    EligibleBrokersChanged,
    FollowerFetched,
    IsrChangeRefused,
    LogDiverged,
    RecordsAppended,
    RecordsReplicated,
    RegistrationChanged,
    TimePassed,
)

MIN_ISR = 2
MAX_LAG_MS = 300


class Simulation:
    fetched_records = 4
    """The maximum number of records per fetch."""

    def __init__(self, seed):
        self.rng = random.Random(seed)
        self.now_ms = 1_000
        self.nodes = {i: Node(i) for i in NODES}
        self.next_broker_epoch = 10
        self.messages = []
        self.drop = self.rng.choice((0.0, 0.02, 0.1))
        self.faults = self.rng.choice((0.1, 0.3, 1.0))
        self.committed = []
        self.acknowledged = {}
        self.leader_of_epoch = {}
        self.next_value = 0
        self.next_token = 0
        for node in self.nodes.values():
            self.start(node)
        self.controller = Controller({n.node_id: n.broker_epoch for n in self.nodes.values()})

    def send(self, deliver, lost=None):
        if self.rng.random() < self.drop:
            if lost is not None:
                self.messages.append(lost)
            return
        self.messages.append(deliver)
        if self.rng.random() < self.drop / 2:
            self.messages.append(deliver)

    def deliver_one(self):
        if self.messages:
            self.messages.pop(self.rng.randrange(len(self.messages)))()

    def start(self, node):
        node.state = PartitionState(node.node_id, min(node.checkpoint, node.log.end), MIN_ISR, MAX_LAG_MS)
        node.broker_epoch = self.next_broker_epoch
        self.next_broker_epoch += 1
        node.alive, node.fetching, node.fetch_in_flight = True, None, None

    def crash(self, node, lossy):
        node.alive = False
        node.waiting.clear()
        if lossy:
            self.controller.fence(node.node_id, self.rng)
            node.log.lose_unsynced()

    def restart(self, node):
        self.controller.fence(node.node_id, self.rng)
        self.start(node)
        self.controller.unfence(node.node_id, node.broker_epoch)
        node.metadata_index = len(self.controller.history) - 1
        self.apply_metadata(node)

    def apply_metadata(self, node):
        isr, leader, leader_epoch, partition_epoch, eligible, registered = self.controller.history[node.metadata_index]
        self.step(node, EligibleBrokersChanged(eligible, registered))
        registration = (NODES, isr, leader, leader_epoch, partition_epoch, node.log.end)
        self.step(node, RegistrationChanged(*registration))

    def follow_metadata(self, node):
        if node.alive and node.metadata_index + 1 < len(self.controller.history):
            node.metadata_index += 1
            self.apply_metadata(node)

    def step(self, node, event):
        before = node.state.high_watermark
        was_leader, epoch = node.state.leader, node.state.leader_epoch
        commands = node.state.step(event, self.now_ms)
        node.state.check_invariants()
        if was_leader is not None and node.state.leader is was_leader and epoch == node.state.leader_epoch:
            assert node.state.high_watermark >= before, "the high watermark went back within a term"
        for command in commands:
            self.execute(node, command, before)
        self.answer_producers(node)

    def execute(self, node, command, high_watermark_before):
        match command:
            case AssignEpochStart(leader_epoch, offset):
                assert offset == node.log.end
                assert self.leader_of_epoch.setdefault(leader_epoch, node.node_id) == node.node_id
                node.log.assign_epoch_start(leader_epoch, offset)
                node.log.synced = node.log.end if self.rng.random() < 0.3 else node.log.synced
            case AdvanceHighWatermark(offset):
                self.check_committed(node, offset)
            case LeadershipLost():
                node.waiting.clear()
            case ProposeIsr():
                self.send_proposal(node, command)
            case StartFetching():
                node.fetching, node.fetch_in_flight = command, None
            case StopFetching():
                node.fetching, node.fetch_in_flight = None, None
            case TruncateTo(offset):
                assert offset >= high_watermark_before, f"{node.node_id} cuts committed records"
                node.log.truncate_to(offset)
            case RestartLogAt():
                raise AssertionError("nothing is ever out of range here")

    def check_committed(self, node, offset):
        assert offset <= node.log.end
        for position in range(min(offset, len(self.committed))):
            assert node.log.records[position] == self.committed[position], "logs differ below the high watermark"
        self.committed.extend(node.log.records[len(self.committed) : offset])

    def answer_producers(self, node):
        still = []
        for required, value in node.waiting:
            try:
                done = node.state.leader is not None and node.state.leader.is_replicated(required)
            except TidelogError:
                continue
            if done:
                self.acknowledged[value] = required - 1
            else:
                still.append((required, value))
        node.waiting = still

    def produce(self, node):
        if not node.alive or node.state.leader is None:
            return
        try:
            node.state.leader.check_enough_replicas()
        except TidelogError:
            return
        for _ in range(self.rng.randint(1, 3)):
            node.log.append([(node.state.leader_epoch, self.next_value)])
            node.waiting.append((node.log.end, self.next_value))
            self.next_value += 1
        self.step(node, RecordsAppended(node.log.end))

    def send_proposal(self, node, request):
        broker_epoch, sender = node.broker_epoch, node.node_id

        def answer(event):
            if node.alive and node.broker_epoch == broker_epoch:
                self.step(node, event)

        def arrive():
            result = self.controller.alter_partition(sender, request)
            self.send(lambda: answer(result), lost=unknown)

        def unknown():
            answer(IsrChangeRefused(request.proposal_id, ErrorCode.REQUEST_TIMED_OUT))

        self.send(arrive, lost=unknown)

    def fetch(self, node):
        if not node.alive or node.fetching is None or node.fetch_in_flight is not None:
            return
        self.next_token += 1
        token = node.fetch_in_flight = self.next_token
        leader, epoch, offset = self.nodes[node.fetching.leader_id], node.fetching.leader_epoch, node.log.end
        last, replica = node.log.latest_epoch, (node.node_id, node.broker_epoch)

        def arrive():
            answer = self.serve_fetch(leader, replica, epoch, offset, last) if leader.alive else None
            self.send(lambda: self.take_fetch(node, token, epoch, answer), lost=give_up)

        def give_up():
            self.take_fetch(node, token, epoch, None)

        self.send(arrive, lost=give_up)

    def serve_fetch(self, leader, replica, epoch, offset, last):
        try:
            leader.state.check_leader_epoch(epoch)
            leader.state.require_leader().check_follower(*replica)
        except TidelogError:
            return None
        if last >= 0:
            diverging = find_divergence(last, offset, leader.log.end_offset_for_epoch(last))
            if diverging is not None:
                return ("diverging", diverging)
        assert offset <= leader.log.end, "a follower is ahead of its leader"
        records = leader.log.records[offset : offset + self.rng.randint(1, self.fetched_records)]
        self.step(leader, FollowerFetched(*replica, offset, 0))
        return ("records", records, leader.state.high_watermark)

    def take_fetch(self, node, token, epoch, answer):
        if not node.alive or node.fetch_in_flight != token:
            return
        node.fetch_in_flight = None
        if answer is None or node.state.leader is not None or epoch != node.state.leader_epoch:
            return
        if answer[0] == "diverging":
            own = node.log.end_offset_for_epoch(answer[1].epoch)
            self.step(node, LogDiverged(epoch, answer[1], own, node.log.end))
            return
        node.log.append(answer[1])
        self.step(node, RecordsReplicated(epoch, node.log.end, 0, answer[2], 0))

    def disturb(self):
        node = self.rng.choice(list(self.nodes.values()))
        actions = {
            self.produce: 10,
            self.fetch: 25,
            self.follow_metadata: 10,
            self.pass_time: 3,
            self.sync: 2,
            self.recover: 2,
            self.crash_somehow: self.faults,
            self.expire_session: self.faults / 2,
            self.move_leader: self.faults,
            self.deliver_some: 45,
        }
        self.rng.choices(list(actions), list(actions.values()))[0](node)
        self.now_ms += self.rng.randint(0, 3)

    def pass_time(self, node):
        if node.alive:
            self.step(node, TimePassed())

    def sync(self, node):
        node.log.synced = node.log.end
        node.checkpoint = node.state.high_watermark

    def recover(self, node):
        if not node.alive:
            self.restart(node)
        elif node.node_id not in self.controller.unfenced:
            self.controller.unfence(node.node_id, node.broker_epoch)

    def crash_somehow(self, node):
        if node.alive:
            others = [n for n in self.controller.isr & self.controller.unfenced if self.nodes[n].alive]
            self.crash(node, lossy=bool(set(others) - {node.node_id}) and self.rng.random() < 0.5)

    def expire_session(self, node):
        self.controller.fence(node.node_id, self.rng)

    def move_leader(self, _):
        self.controller.move_leader(self.rng)

    def deliver_some(self, _):
        for _ in range(4):
            self.deliver_one()

    def heal(self):
        self.drop = 0.0
        for node in self.nodes.values():
            if not node.alive:
                self.restart(node)
            if node.node_id not in self.controller.unfenced:
                self.controller.unfence(node.node_id, node.broker_epoch)
        for round_number in range(400):
            for node in self.nodes.values():
                self.follow_metadata(node)
                self.fetch(node)
                self.step(node, TimePassed())
                if round_number == 200:
                    self.produce(node)
            for _ in range(len(self.messages)):
                self.deliver_one()
            self.now_ms += 1

    def check_converged(self):
        """Assert, after :meth:`heal`, that the logs are equal, no acknowledged record is missing and the ISR is
        complete.
        """
        logs = [n.log.records for n in self.nodes.values()]
        assert logs[0] == logs[1] == logs[2], "the logs differ after healing"
        values = {value: offset for offset, (_, value) in enumerate(logs[0])}
        lost = {v for v, offset in self.acknowledged.items() if values.get(v) != offset}
        assert not lost, f"acknowledged records lost: {sorted(lost)}"
        assert self.controller.isr == frozenset(NODES), "the ISR is not whole again"
        assert {n.state.high_watermark for n in self.nodes.values()} == {len(logs[0])}
