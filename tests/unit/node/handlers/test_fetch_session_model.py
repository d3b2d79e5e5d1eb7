"""A leader whose followers fetch in sessions decides as one whose followers name every partition each time."""

import asyncio
import random
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace

import pytest

from tests.support.memory_disk import MemoryFiles
from tests.support.seeds import reproducible, seed_blocks
from tidelog.v1 import log_service_pb2 as pb
from tidelog_foundation.errors import ErrorCode
from tidelog_foundation.fetch_session import FetchSessionHandler
from tidelog_foundation.records import RecordBatchBuilder, iter_headers
from tidelog_node.handlers.context import NodeContext
from tidelog_node.log import LogConfig, PartitionLog
from tidelog_node.partitions import Partition, ReplicationThrottles
from tidelog_node.replication import PartitionState
from tidelog_node.replication.events import (
    EligibleBrokersChanged,
    IsrChangeAccepted,
    IsrChangeRefused,
    RegistrationChanged,
)
from tidelog_node.server import log_service

PARTITIONS = range(3)
FOLLOWERS = (2, 3)
LAG_MS = 500


def one_batch():
    builder = RecordBatchBuilder()
    builder.append(None, b"v", [], 1)
    return builder.build()


BATCH = one_batch()


class Clock:
    now_ms = 1_000

    def monotonic_ms(self):
        return self.now_ms

    def wall_ms(self):
        return 1_000


@dataclass
class Copy:
    """A follower's copy of one partition, and the answers that it got."""

    end: int = 0
    last_epoch: int = -1
    log_start: int = 0
    high_watermark: int = 0
    leader_log_start: int = 0
    leader_epoch: int = 0
    is_paused: bool = False


class World:
    """Node 1 leads three partitions; nodes 2 and 3 fetch them, in sessions or not."""

    def __init__(self, has_sessions):
        self.has_sessions = has_sessions
        self.clock = Clock()
        self.proposals = {index: [] for index in PARTITIONS}
        self.partition_epochs = dict.fromkeys(PARTITIONS, 0)
        self.replica_epochs = dict.fromkeys(FOLLOWERS, 10)
        self.fetch_epochs = dict(self.replica_epochs)
        self.partitions = {index: self.open(index) for index in PARTITIONS}
        registry = SimpleNamespace(
            get=lambda topic, index: self.partitions.get(index), check_online=lambda topic, index: None
        )
        throttles = ReplicationThrottles(self.clock)
        image = SimpleNamespace(partition=lambda topic, index: None)
        metadata = SimpleNamespace(image=image)
        self.context = NodeContext(1, "c", "", registry, metadata, None, {}, self.clock, 1 << 20, throttles, None, None)
        self.copies = {f: {i: Copy() for i in PARTITIONS} for f in FOLLOWERS}
        self.sessions = {f: FetchSessionHandler() for f in FOLLOWERS}
        self.eligible(FOLLOWERS)
        for index in PARTITIONS:
            self.register(index, epoch=0, isr=(1, *FOLLOWERS))

    def open(self, index):
        log = PartitionLog.open(Path(f"/logs/t-{index}"), LogConfig(), files=MemoryFiles())
        state = PartitionState(1, 0, 1, LAG_MS)
        return Partition("t", b"i" * 16, index, log, state, self, self.clock)

    def propose_isr(self, partition, proposal):
        self.proposals[partition.index].append(proposal)

    def start_fetching(self, partition, leader_id, leader_epoch):
        raise AssertionError("node 1 leads")

    def stop_fetching(self, partition):
        pass

    def storage_failed(self, partition, error):
        raise error

    def register(self, index, epoch, isr):
        self.partition_epochs[index] += 1
        partition = self.partitions[index]
        end = partition.log.log_end_offset
        event = RegistrationChanged((1, *FOLLOWERS), frozenset(isr), 1, epoch, self.partition_epochs[index], end)
        partition.step(event)

    def append(self, index):
        self.partitions[index].append(BATCH, needs_all_replicas=False)

    def eligible(self, nodes):
        self.unfenced = {1: 5} | {n: self.replica_epochs[n] for n in nodes}
        for partition in self.partitions.values():
            partition.step(EligibleBrokersChanged(dict(self.unfenced), {1: 5} | self.replica_epochs))

    def restart_follower(self, follower):
        """It registers anew; the leader and the follower's fetcher may hear of that later."""
        self.replica_epochs[follower] += 1

    def fetch_with_latest_epoch(self, follower):
        self.fetch_epochs[follower] = self.replica_epochs[follower]

    def pass_time(self, ms):
        self.clock.now_ms += ms

    def look_for_lag(self):
        for partition in self.partitions.values():
            partition.pass_time()

    def answer_proposal(self, index, accepts):
        if self.proposals[index]:
            proposal = self.proposals[index].pop(0)
            partition = self.partitions[index]
            isr = frozenset(member for member, _ in proposal.isr)
            if not accepts:
                partition.step(IsrChangeRefused(proposal.proposal_id, ErrorCode.INELIGIBLE_REPLICA))
            elif isr < partition.state.leader.isr.committed.members:
                self.register(index, partition.state.leader_epoch, isr)
            else:
                self.partition_epochs[index] += 1
                epoch = self.partition_epochs[index]
                partition.step(IsrChangeAccepted(proposal.proposal_id, proposal.leader_epoch, epoch, isr))

    def elect(self, index):
        leader = self.partitions[index].state.leader
        self.proposals[index].clear()
        self.register(index, leader.leader_epoch + 1, leader.isr.committed.members)

    def learn(self, follower, index):
        self.copies[follower][index].leader_epoch = self.partitions[index].state.leader_epoch

    def pause(self, follower, index, is_paused):
        self.copies[follower][index].is_paused = is_paused

    def delete(self, index):
        partition = self.partitions[index]
        # Its future is not awaited, and never fails here.
        partition.delete_records(-1)

    def lose_records(self, follower, index):
        """A follower that lost its last record, as a crash does."""
        copy = self.copies[follower][index]
        if copy.end > max(copy.log_start, copy.high_watermark):
            copy.end -= 1

    def evict(self, follower):
        session_id = self.sessions[follower].session_id
        self.context.fetch_sessions._close(session_id)

    async def fetch(self, follower, is_answer_lost):
        session = self.sessions[follower]
        for index, copy in self.copies[follower].items():
            if copy.is_paused:
                session.forget(("t", index))
            else:
                session.want(("t", index), (copy.end, copy.last_epoch, copy.leader_epoch, copy.log_start))
        if not len(session):
            return
        response = await self.call(follower, session)
        if response.HasField("error"):
            # Both worlds have the same fetches: the full one follows at once.
            session.take_error(ErrorCode.of(response.error.code))
            response = await self.call(follower, session)
        assert not response.HasField("error"), response.error
        if is_answer_lost:
            session.take_failure()
            return
        results = {(topic.name, r.index): r for topic in response.topics for r in topic.partitions}
        assert session.take_answer(response.session_id, results.keys())
        session.check_invariants()
        self.context.fetch_sessions.cache.check_invariants()
        for (_, index), result in results.items():
            self.take(self.copies[follower][index], result)

    async def call(self, follower, session):
        asked = session.build()
        wanted = asked.wanted if self.has_sessions else {k: session.sent(k) for k in session._wanted}
        topic = pb.FetchTopic(name="t", topic_id=b"i" * 16)
        for (_, index), (end, last_epoch, leader_epoch, log_start) in wanted.items():
            topic.partitions.add(
                index=index,
                fetch_offset=end,
                partition_max_bytes=1,
                current_leader_epoch=leader_epoch,
                last_fetched_epoch=None if last_epoch < 0 else last_epoch,
                log_start_offset=log_start,
            )
        request = pb.FetchRequest(
            replica=pb.ReplicaState(replica_id=follower, replica_epoch=self.fetch_epochs[follower]),
            min_bytes=1,
            max_bytes=1 << 20,
            topics=[topic] if wanted else [],
        )
        if self.has_sessions:
            request.session.id, request.session.epoch = asked.session_id, asked.epoch
            for name, index in asked.forgotten:
                request.forgotten_topics.add(name=name, partitions=[index])
        return await log_service.fetch(self.context, request)

    def take(self, copy, result):
        if result.HasField("error"):
            if result.error.code == ErrorCode.OFFSET_OUT_OF_RANGE.code and copy.end < result.log_start_offset:
                copy.end = copy.log_start = copy.high_watermark = result.log_start_offset
                copy.last_epoch = -1
            return
        assert not result.HasField("diverging_epoch")
        for _, header in iter_headers(result.records):
            copy.end, copy.last_epoch = header.next_offset, header.partition_leader_epoch
        copy.high_watermark = max(copy.high_watermark, min(result.high_watermark, copy.end))
        copy.leader_log_start = result.log_start_offset
        copy.log_start = max(copy.log_start, min(result.log_start_offset, copy.high_watermark))

    def view(self):
        return self.copies, {i: self.leader_view(i) for i in PARTITIONS}

    def leader_view(self, index):
        partition = self.partitions[index]
        partition.state.check_invariants()
        leader = partition.state.leader
        followers = {
            f: (
                p.log_end_offset,
                p.log_start_offset,
                p.caught_up_ms,
                max(p.last_fetch_ms, p.lease.last_fetch_ms if p.lease else 0),
                p.leader_end_at_last_fetch,
                p.broker_epoch,
                p.is_caught_up(leader.log_end_offset, self.clock.now_ms, LAG_MS),
            )
            for f, p in leader.followers.items()
        }
        start = partition.log.log_start_offset
        return leader.high_watermark, start, leader.isr, followers, [p.isr for p in self.proposals[index]]


def draw(rng):
    """Return a step: its name and its arguments."""
    index, follower = rng.choice(PARTITIONS), rng.choice(FOLLOWERS)
    steps = {
        ("fetch", follower, rng.random() < 0.05): 40,
        ("append", index): 12,
        ("pass_time", rng.choice((1, 100, 600))): 10,
        ("look_for_lag",): 6,
        ("answer_proposal", index, rng.random() < 0.7): 8,
        ("elect", index): 2,
        ("learn", follower, index): 6,
        ("pause", follower, index, rng.random() < 0.4): 4,
        ("delete", index): 2,
        ("lose_records", follower, index): 2,
        ("eligible", tuple(f for f in FOLLOWERS if rng.random() < 0.8)): 3,
        ("restart_follower", follower): 1,
        ("fetch_with_latest_epoch", follower): 3,
        ("evict", follower): 1,
    }
    return rng.choices(list(steps), list(steps.values()))[0]


@pytest.mark.sim
@pytest.mark.parametrize("block", seed_blocks(60, 20), ids=lambda block: f"{block[0]}-{block[-1]}")
def test_sessions_leave_leader_and_followers_as_full_requests_do(block):
    async def run(seed):
        rng, done = random.Random(seed), []
        worlds = [World(has_sessions=True), World(has_sessions=False)]
        for _ in range(200):
            name, *arguments = draw(rng)
            done.append((name, *arguments))
            for world in worlds:
                result = getattr(world, name)(*arguments)
                if result is not None:
                    await result
            assert worlds[0].view() == worlds[1].view(), done[-12:]

    for seed in block:
        with reproducible(seed):
            asyncio.run(run(seed))


def test_an_idle_fetch_reads_no_partition(monkeypatch):
    async def run():
        world = World(has_sessions=True)
        reads = []
        read = Partition.read_as_leader

        def counting(partition, *arguments):
            reads.append(partition)
            return read(partition, *arguments)

        monkeypatch.setattr(Partition, "read_as_leader", counting)
        await world.fetch(2, False)
        assert len(reads) == len(PARTITIONS)
        await world.fetch(2, False)
        world.append(1)
        assert len(reads) == len(PARTITIONS)
        await world.fetch(2, False)
        assert len(reads) == len(PARTITIONS) + 1
        await world.fetch(2, False)
        await world.fetch(2, False)
        assert len(reads) <= len(PARTITIONS) + 3, "the append, its acknowledgement, the high watermark"

    asyncio.run(run())
