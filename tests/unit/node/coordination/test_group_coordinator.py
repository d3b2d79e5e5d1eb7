"""The group coordinator of nodes in one process, with a shard that commits offsets and does nothing else."""

import asyncio
import contextlib
from types import SimpleNamespace

import pytest

from tidelog_foundation import waiting
from tidelog_foundation.errors import ErrorCode, TidelogError, error_for
from tidelog_foundation.requests.configs import ConfigResourceType
from tidelog_node.coordination import OFFSETS_TOPIC, GroupCoordinator, coordinator, shard_driver
from tidelog_node.coordination.internal_topics import java_hash, partition_for
from tidelog_node.coordination.rocks_view import ShardView
from tidelog_node.coordination.views import ViewFailedError
from tidelog_node.event_loop import SystemClock
from tidelog_node.groups.events import TimingsChanged, TopicsChanged
from tidelog_node.groups.messages import (
    JoinGroupRequest,
    OffsetCommitPartition,
    OffsetCommitRequest,
    OffsetCommitResponse,
    OffsetCommitTopic,
    OffsetCommitTopicResult,
    OffsetFetchGroup,
    OffsetFetchGroupResult,
    OffsetFetchPartitionResult,
    OffsetFetchRequest,
    OffsetFetchTopicResult,
)
from tidelog_node.groups.records import OffsetCommitKey, encode_key
from tidelog_node.groups.settings import OwnTimings
from tidelog_node.handlers.group_offsets import offset_fetch
from tidelog_node.shards.events import (
    ClientIdentity,
    RecordsCommitted,
    RequestAbandoned,
    RequestReceived,
    Respond,
    ShardRecord,
    TimePassed,
    WriteFailed,
    WriteRecords,
)
from tidelog_quorum.metadata.records import ConfigRecord, PartitionChangeRecord, RemoveTopicRecord

TOPIC_ID = b"0123456789abcdef"
CLIENT = ClientIdentity("client", "/127.0.0.1")


def commit_request(group, offset):
    partition = OffsetCommitPartition(index=0, committed_offset=offset)
    return OffsetCommitRequest(group_id=group, topics=(OffsetCommitTopic(name="t", partitions=(partition,)),))


class CommittingShard:
    """Writes what is committed and answers when that is done; a JoinGroup waits, offsets are read from the store."""

    def __init__(self, store):
        self.store = store
        self.events = []
        self.writes = {}
        self.deadline_ms = None
        self.fails = False

    @property
    def next_deadline_ms(self):
        return self.deadline_ms

    def step(self, event, now_ms, wall_ms):
        self.events.append(event)
        if self.fails:
            raise ValueError("for the test")
        match event:
            case RequestReceived(call_id, OffsetCommitRequest() as request):
                value = b"%d" % request.topics[0].partitions[0].committed_offset
                record = ShardRecord(encode_key(OffsetCommitKey(request.group_id, "t", 0)), value)
                self.writes[len(self.writes)] = call_id
                return [WriteRecords(len(self.writes) - 1, (record,))]
            case RequestReceived(call_id, OffsetFetchGroup() as request):
                values = [int(record.value) for record in self.store.records_of(request.group_id)]
                return [Respond(call_id, fetched(*values))]
            case RecordsCommitted(write_id):
                return [Respond(self.writes[write_id], OffsetCommitResponse())]
            case WriteFailed(write_id, error):
                message = OffsetCommitResponse(topics=(OffsetCommitTopicResult(name=error.code.name),))
                return [Respond(self.writes[write_id], message)]
            case TimePassed():
                self.deadline_ms = None
        return []


def fetched(*offsets):
    partitions = tuple(OffsetFetchPartitionResult(0, committed_offset=offset) for offset in offsets)
    return OffsetFetchGroupResult("g", topics=(OffsetFetchTopicResult("t", partitions),))


class Groups:
    """A coordinator beside each node of a cluster."""

    def __init__(self, cluster, tasks, session_wait_ms, commit_timeout_ms):
        self.commit_timeout_ms = commit_timeout_ms
        self.cluster = cluster
        self.session_wait_ms = session_wait_ms
        self.shards = {}
        self.created = []
        self.failure = None
        self.of = {}
        self.without_session = set()
        self.tasks = {}
        for node_id, node in cluster.nodes.items():
            self.start(node_id, node, tasks)

    def start(self, node_id, node, tasks):
        def new_core(store):
            self.shards[node_id] = shard = CommittingShard(store)
            return shard

        self.of[node_id] = GroupCoordinator(
            node.registry,
            node.cache,
            SimpleNamespace(want=self.created.extend, failure_of=lambda name: self.failure),
            lambda: [directory.path for directory in node.directories.online],
            new_core,
            SystemClock(),
            "lz4",
            self.commit_timeout_ms,
            lambda: node_id not in self.without_session,
            self.session_wait_ms,
        )
        self.tasks[node_id] = tasks.create_task(self.of[node_id].run(), name=f"groups-of-{node_id}")

    def partition(self, node_id):
        return self.cluster.nodes[node_id].registry.get(OFFSETS_TOPIC, 0)

    async def commit(self, node_id, group, offset):
        response = await self.of[node_id].call(0, commit_request(group, offset), CLIENT)
        return [topic.name for topic in response.topics]

    async def fetch(self, node_id, group):
        """Return the committed offsets, asking again while the shard is being loaded."""
        while True:
            try:
                response = await self.of[node_id].call(0, OffsetFetchGroup(group_id=group), CLIENT)
                return [p.committed_offset for topic in response.topics for p in topic.partitions]
            except TidelogError as error:
                if error.code is not ErrorCode.COORDINATOR_LOAD_IN_PROGRESS:
                    raise
                await asyncio.sleep(0.005)

    async def elect(self, leader, isr=None):
        await self.cluster.controller.change(PartitionChangeRecord(TOPIC_ID, 0, leader=leader, isr=isr))


@pytest.fixture
def groups_of(cluster_of):
    """Return an async context manager: nodes with coordinators, and __consumer_offsets of one partition."""

    @contextlib.asynccontextmanager
    async def start(*node_ids, creates=True, session_wait_ms=50, commit_timeout_ms=10_000, **options):
        async with cluster_of(*node_ids, **options) as cluster, asyncio.TaskGroup() as tasks:
            groups = Groups(cluster, tasks, session_wait_ms, commit_timeout_ms)
            if creates:
                await cluster.create_topic(OFFSETS_TOPIC, replicas=node_ids)
            try:
                yield groups
            finally:
                for task in groups.tasks.values():
                    task.cancel()

    return start


async def code_of(awaitable):
    with pytest.raises(TidelogError) as caught:
        await awaitable
    return caught.value.code


def test_group_is_in_the_partition_that_kafka_puts_it_in():
    assert java_hash("") == 0
    assert java_hash("polygenelubricants") == -(2**31)
    assert java_hash("hello") == 99162322
    assert java_hash("\U0001f30a") == 1773134
    assert partition_for("polygenelubricants", 50) == 0
    assert partition_for("my-group", 50) == abs(java_hash("my-group")) % 50


def test_coordinator_is_the_leader_and_the_topic_is_created_when_it_is_not_there(groups_of):
    async def run():
        async with groups_of(1, 2, 3, creates=False) as groups:
            answer = groups.of[2].coordinator_of("g")
            assert (answer.error.code, answer.node_id) == (ErrorCode.COORDINATOR_NOT_AVAILABLE, -1)
            assert groups.created == [OFFSETS_TOPIC]
            groups.failure = "too few nodes"
            assert groups.of[2].coordinator_of("g").error.message.endswith("cannot be created: too few nodes")
            groups.created.pop()
            assert groups.of[2].coordinator_of("g" * 32_768).error.code is ErrorCode.INVALID_GROUP_ID

            await groups.cluster.create_topic(OFFSETS_TOPIC)
            answer = groups.of[2].coordinator_of("g")
            assert (answer.node_id, answer.endpoint.host, answer.endpoint.port) == (1, "node", 1)
            await groups.elect(-1)
            assert groups.of[2].coordinator_of("g").error.code is ErrorCode.COORDINATOR_NOT_AVAILABLE
            assert groups.created == [OFFSETS_TOPIC]

    asyncio.run(run())


def test_commit_is_answered_when_it_is_on_all_replicas_and_moves_with_the_leader(groups_of):
    async def run():
        async with groups_of(1, 2, 3) as groups:
            assert await groups.fetch(1, "g") == []
            for offset in range(20):
                assert await groups.commit(1, f"g{offset % 2}", offset) == []
            assert await groups.fetch(1, "g0") == [18]
            assert groups.shards[1].store.last.offset == groups.partition(1).log.log_end_offset == 20
            assert await code_of(groups.commit(2, "g0", 1)) is ErrorCode.NOT_COORDINATOR

            await groups.elect(2)
            assert await groups.fetch(2, "g1") == [19]
            assert await code_of(groups.commit(1, "g0", 1)) is ErrorCode.NOT_COORDINATOR
            assert await groups.commit(2, "g1", 100) == []
            await groups.elect(1)
            assert await groups.fetch(1, "g1") == [100], "its view is behind, the log's tail is not"

    asyncio.run(run())


def test_commit_that_the_replicas_do_not_take_in_time_is_not_lost_when_they_do_later(groups_of, wait_for):
    async def run():
        async with groups_of(1, 2, commit_timeout_ms=150) as groups:
            await groups.fetch(1, "g")
            groups.cluster.transport.cut_off.add(2)
            assert await code_of(groups.commit(1, "g", 7)) is ErrorCode.COORDINATOR_NOT_AVAILABLE
            assert await groups.fetch(1, "g") == [], "not committed"
            assert isinstance(groups.shards[1].events[-2], RequestAbandoned)

            groups.cluster.transport.cut_off.clear()
            await wait_for(lambda: groups.partition(1).high_watermark == 1)
            assert await groups.fetch(1, "g") == [7]

    asyncio.run(run())


def test_commits_are_refused_when_too_much_waits_for_the_replicas(groups_of, monkeypatch):
    monkeypatch.setattr(shard_driver, "_MAX_UNCOMMITTED_BYTES", 50)

    async def run():
        async with groups_of(1, 2, commit_timeout_ms=150) as groups:
            await groups.fetch(1, "g")
            groups.cluster.transport.cut_off.add(2)
            assert await code_of(groups.commit(1, "g", 7)) is ErrorCode.COORDINATOR_NOT_AVAILABLE
            size = groups.partition(1).log.size_in_bytes
            with pytest.raises(TidelogError, match="bytes wait for the replicas of __consumer_offsets-0, more than 50"):
                await groups.commit(1, "g", 8)
            assert groups.partition(1).log.size_in_bytes == size

    asyncio.run(run())


def test_commit_is_refused_while_there_are_too_few_replicas(groups_of):
    async def run():
        async with groups_of(1, 2, min_isr=2) as groups:
            await groups.fetch(1, "g")
            groups.cluster.transport.cut_off.add(2)
            await groups.elect(1, isr=(1,))
            await groups.fetch(1, "g")
            assert await groups.commit(1, "g", 7) == ["NOT_ENOUGH_REPLICAS"], "the shard translates"
            assert groups.partition(1).log.log_end_offset == 0

    asyncio.run(run())


def test_offsets_are_not_told_by_a_node_that_may_have_been_replaced(groups_of):
    async def run():
        async with groups_of(1, 2) as groups:
            assert await groups.fetch(1, "g") == []
            groups.without_session.add(1)
            asked = groups.of[1].call(0, OffsetFetchGroup(group_id="g"), CLIENT)
            assert await code_of(asked) is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, "librdkafka repeats no other"
            assert await groups.commit(1, "g", 7) == [], "the replicas have it: it is good whoever leads"
            groups.without_session.clear()
            assert await groups.fetch(1, "g") == [7]

    asyncio.run(run())


async def asked_for_offsets(coordinator):
    request = OffsetFetchRequest(groups=(OffsetFetchGroup(group_id="g"),))
    [answer] = (await offset_fetch(coordinator, request, CLIENT)).groups
    return answer.error and answer.error.code, [p.committed_offset for topic in answer.topics for p in topic.partitions]


def test_offsets_are_told_when_the_session_comes_back_soon(groups_of):
    async def run():
        async with groups_of(1, 2, session_wait_ms=60_000) as groups:
            assert await groups.fetch(1, "g") == []
            groups.without_session.add(1)
            asked = asyncio.create_task(asked_for_offsets(groups.of[1]))
            assert await groups.commit(1, "g", 7) == []
            assert not asked.done(), "librdkafka may not ask again when it is refused"
            groups.without_session.clear()
            async with asyncio.timeout(10):
                assert await asked == (None, [7])

    asyncio.run(run())


def test_offsets_are_refused_when_the_session_does_not_come_back(groups_of):
    async def run():
        async with groups_of(1, session_wait_ms=50) as groups:
            assert await groups.fetch(1, "g") == []
            groups.without_session.add(1)
            async with asyncio.timeout(10):
                assert await asked_for_offsets(groups.of[1]) == (ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, [])

    asyncio.run(run())


def test_all_calls_are_answered_when_the_leadership_moves(groups_of):
    async def run():
        async with groups_of(1, 2) as groups:
            await groups.fetch(1, "g")
            joining = asyncio.create_task(groups.of[1].call(0, JoinGroupRequest(group_id="g"), CLIENT))
            groups.cluster.transport.cut_off.add(2)
            committing = asyncio.create_task(groups.commit(1, "g", 1))
            await asyncio.sleep(0.02)
            assert not joining.done()

            await groups.elect(2)
            assert await code_of(joining) is ErrorCode.NOT_COORDINATOR
            assert await code_of(committing) is ErrorCode.NOT_COORDINATOR

    asyncio.run(run())


def test_same_leader_of_a_new_term_loads_the_shard_again_by_itself(groups_of, wait_for):
    async def run():
        async with groups_of(1) as groups:
            await groups.fetch(1, "g")
            first = groups.shards[1]
            # At once: when the second image comes the driver of the first term has not ended.
            await groups.elect(-1)
            await groups.elect(1)
            await wait_for(lambda: groups.shards[1] is not first)
            assert await groups.fetch(1, "g") == []

    asyncio.run(run())


def test_new_leader_serves_nothing_before_all_that_it_has_is_committed(groups_of, wait_for):
    async def run():
        async with groups_of(1, 2, 3) as groups:
            await groups.fetch(1, "g")
            groups.cluster.transport.cut_off.add(3)
            committing = asyncio.create_task(groups.commit(1, "g", 7))
            await wait_for(lambda: groups.partition(2).log.log_end_offset == 1)
            assert groups.partition(2).high_watermark == 0
            await groups.elect(2)
            assert await code_of(committing) is ErrorCode.NOT_COORDINATOR
            await asyncio.sleep(0.05)
            request = OffsetFetchGroup(group_id="g")
            assert await code_of(groups.of[2].call(0, request, CLIENT)) is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
            groups.cluster.transport.cut_off.clear()
            assert await groups.fetch(2, "g") == [7]

    asyncio.run(run())


def test_groups_that_cannot_be_loaded_are_logged_with_the_reason(groups_of, wait_for, monkeypatch, caplog):
    monkeypatch.setattr(waiting, "SILENT_S", 0.1)
    monkeypatch.setattr(waiting, "_WATCH_EVERY_S", 0.02)

    async def run():
        async with groups_of(1, 2, 3) as groups:
            await groups.fetch(1, "g")
            groups.cluster.transport.cut_off.add(3)
            committing = asyncio.create_task(groups.commit(1, "g", 7))
            await wait_for(lambda: groups.partition(2).log.log_end_offset == 1)
            await groups.elect(2)
            assert await code_of(committing) is ErrorCode.NOT_COORDINATOR
            await wait_for(lambda: any(expected in record.getMessage() for record in caplog.records))
            groups.cluster.transport.cut_off.clear()
            assert await groups.fetch(2, "g") == [7]

    expected = "for groups to be loaded: __consumer_offsets-0 is committed up to offset 0 of 1"
    asyncio.run(run())


def test_shard_goes_with_its_topic_and_a_new_one_knows_nothing(groups_of):
    async def run():
        async with groups_of(1) as groups:
            await groups.fetch(1, "g")
            await groups.commit(1, "g", 7)
            await groups.cluster.controller.change(RemoveTopicRecord(TOPIC_ID))
            assert await code_of(groups.fetch(1, "g")) is ErrorCode.NOT_COORDINATOR
            await groups.cluster.create_topic(OFFSETS_TOPIC, replicas=(1,), topic_id=b"f" * 16)
            assert await groups.fetch(1, "g") == []
            assert await groups.commit(1, "g", 8) == []

    asyncio.run(run())


def test_view_forgets_partitions_that_the_node_has_no_replica_of_any_more(groups_of, wait_for):
    async def run():
        async with groups_of(1, 2) as groups:
            await groups.cluster.create_topic("t", replicas=(1,), topic_id=b"t" * 16)
            assert await groups.fetch(1, "g") == []
            await groups.commit(1, "g", 7)
            view = groups.shards[1].store
            await groups.elect(2)
            assert await groups.fetch(2, "g") == [7]
            assert view.records_of("g") != [], "this node may lead it again"
            change = PartitionChangeRecord(TOPIC_ID, 0, isr=(2,), replicas=(2,))
            await groups.cluster.controller.change(change)
            await wait_for(lambda: view.records_of("g") == [])
            assert view._store.position() is None
            assert await groups.fetch(2, "g") == [7]

    asyncio.run(run())


def test_shard_goes_with_its_log_directory(groups_of):
    async def run():
        async with groups_of(1, 2) as groups:
            await groups.fetch(1, "g")
            joining = asyncio.create_task(groups.of[1].call(0, JoinGroupRequest(group_id="g"), CLIENT))
            await asyncio.sleep(0)
            path = groups.partition(1).log.directory.parent
            groups.cluster.nodes[1].registry.fail_directory(path, error_for(ErrorCode.KAFKA_STORAGE_ERROR, "a test"))
            assert await code_of(joining) is ErrorCode.NOT_COORDINATOR
            assert await code_of(groups.fetch(1, "g")) is ErrorCode.NOT_COORDINATOR
            with pytest.raises(TidelogError, match="a test"):
                await groups.cluster.nodes.pop(1).close()

    asyncio.run(run())


@pytest.mark.parametrize("what", ["shard", "view"])
def test_shard_that_fails_is_loaded_again_with_all_that_is_in_the_log(groups_of, monkeypatch, caplog, what):
    monkeypatch.setattr(shard_driver, "_RETRY_S", 0.01)

    async def run():
        async with groups_of(1) as groups:
            await groups.fetch(1, "g")
            await groups.commit(1, "g", 7)
            first = groups.shards[1]
            if what == "shard":
                first.fails = True
            else:
                apply = ShardView.apply

                def broken(self, *args):
                    monkeypatch.setattr(ShardView, "apply", apply)
                    raise ViewFailedError(ErrorCode.KAFKA_STORAGE_ERROR, "a block is damaged")

                monkeypatch.setattr(ShardView, "apply", broken)
            assert await code_of(groups.commit(1, "g", 8)) is ErrorCode.NOT_COORDINATOR
            assert await groups.fetch(1, "g") == [7 if what == "shard" else 8], (
                "what is in the log, no more and no less"
            )
            assert groups.shards[1] is not first
            assert ("is broken and is recreated" in caplog.text) == (what == "view")
            assert ("for the test" if what == "shard" else "a block is damaged") in caplog.text

    asyncio.run(run())


def test_shard_is_told_the_topics_at_its_start_and_when_they_change(groups_of, wait_for):
    def told(groups):
        return [sorted(e.topics) for e in groups.shards[1].events if isinstance(e, TopicsChanged)]

    async def run():
        async with groups_of(1, 2) as groups:
            await groups.fetch(1, "g")
            assert told(groups) == [[OFFSETS_TOPIC]]
            await groups.cluster.create_topic("t", partitions=3, topic_id=b"t" * 16)
            await wait_for(lambda: len(told(groups)) == 2)
            assert told(groups)[-1] == [OFFSETS_TOPIC, "t"]
            topic = groups.shards[1].events[-1].topics["t"]
            assert (topic.topic_id, topic.partitions, topic.racks) == (b"t" * 16, 3, ())
            await groups.cluster.controller.change(PartitionChangeRecord(b"t" * 16, 0, isr=(1,)))
            await asyncio.sleep(0.15)
            assert len(told(groups)) == 2, "an ISR is no business of groups"

    asyncio.run(run())


def test_shard_is_told_what_is_set_on_groups_at_its_start_and_when_it_changes(groups_of, wait_for):
    def told(groups):
        return [e.own_timings for e in groups.shards[1].events if isinstance(e, TimingsChanged)]

    async def run():
        async with groups_of(1) as groups:
            setting = (ConfigResourceType.GROUP, "g", "consumer.session.timeout.ms")
            await groups.cluster.controller.change(ConfigRecord(*setting, "50000"))
            await groups.fetch(1, "g")
            assert told(groups) == [{"g": OwnTimings(50_000)}]
            newer = ConfigRecord(ConfigResourceType.GROUP, "g", "not.known.yet", "1")
            await groups.cluster.controller.change(ConfigRecord(*setting, "55000"), newer)
            await wait_for(lambda: len(told(groups)) == 2)
            await groups.cluster.controller.change(ConfigRecord(*setting, None))
            await wait_for(lambda: len(told(groups)) == 3)
            assert told(groups)[1:] == [{"g": OwnTimings(55_000)}, {"g": OwnTimings()}]

    asyncio.run(run())


def test_commit_finds_the_shard_with_all_topics_that_its_node_knows(groups_of):
    async def run():
        async with groups_of(1) as groups:
            await groups.fetch(1, "g")
            for number in range(3):
                topic_id = b"%d" % number * 16
                await groups.cluster.create_topic(f"t{number}", replicas=(1,), topic_id=topic_id)
                await groups.commit(1, "g", number)
                told = [event for event in groups.shards[1].events if isinstance(event, TopicsChanged)]
                assert f"t{number}" in told[-1].topics
            assert len(told) == 4

    asyncio.run(run())


def test_shard_is_told_that_time_has_passed_when_it_wants_to(groups_of, wait_for):
    async def run():
        async with groups_of(1) as groups:
            await groups.fetch(1, "g")
            shard = groups.shards[1]
            shard.deadline_ms = SystemClock().monotonic_ms() + 30
            await groups.fetch(1, "g")
            await wait_for(lambda: isinstance(shard.events[-1], TimePassed))
            assert shard.events.count(TimePassed()) == 1

    asyncio.run(run())


def test_caller_that_has_gone_is_told_to_the_shard(groups_of):
    async def run():
        async with groups_of(1) as groups:
            await groups.fetch(1, "g")
            joining = asyncio.create_task(groups.of[1].call(0, JoinGroupRequest(group_id="g"), CLIENT))
            await asyncio.sleep(0.01)
            joining.cancel()
            await asyncio.gather(joining, return_exceptions=True)
            await groups.fetch(1, "g")
            received = next(
                e for e in groups.shards[1].events if getattr(e, "request", None) == JoinGroupRequest(group_id="g")
            )
            assert RequestAbandoned(received.call_id) in groups.shards[1].events

    asyncio.run(run())


def test_calls_are_bounded_in_number_and_bytes(groups_of, monkeypatch):
    monkeypatch.setattr(coordinator, "MAX_CALLS", 3)
    monkeypatch.setattr(coordinator, "MAX_CALL_BYTES", 20_000)

    async def run():
        async with groups_of(1) as groups:
            await groups.fetch(1, "g")
            join = JoinGroupRequest(group_id="g")
            joining = [asyncio.create_task(groups.of[1].call(0, join, CLIENT)) for _ in range(3)]
            await asyncio.sleep(0.01)
            assert await code_of(groups.of[1].call(0, join, CLIENT)) is ErrorCode.COORDINATOR_NOT_AVAILABLE
            joining.pop().cancel()
            await asyncio.sleep(0.01)
            large = JoinGroupRequest(group_id="g", reason="x" * 10_000)
            assert await code_of(groups.of[1].call(0, large, CLIENT)) is ErrorCode.COORDINATOR_NOT_AVAILABLE
            for task in joining:
                task.cancel()
            await asyncio.gather(*joining, return_exceptions=True)
            assert await groups.fetch(1, "g") == []

    asyncio.run(run())


def test_stop_answers_all_and_a_start_finds_everything_in_the_view(groups_of):
    async def run():
        async with groups_of(1, commit_timeout_ms=150) as groups:
            await groups.fetch(1, "g")
            await groups.commit(1, "g", 7)
            joining = asyncio.create_task(groups.of[1].call(0, JoinGroupRequest(group_id="g"), CLIENT))
            await asyncio.sleep(0)
            groups.tasks[1].cancel()
            await asyncio.wait([groups.tasks[1]])
            assert await code_of(joining) is ErrorCode.NOT_COORDINATOR
            assert await code_of(groups.commit(1, "g", 8)) is ErrorCode.COORDINATOR_NOT_AVAILABLE

            async with asyncio.TaskGroup() as tasks:
                groups.start(1, groups.cluster.nodes[1], tasks)
                await asyncio.sleep(0)
                assert await groups.fetch(1, "g") == [7]
                groups.tasks[1].cancel()

    asyncio.run(run())
