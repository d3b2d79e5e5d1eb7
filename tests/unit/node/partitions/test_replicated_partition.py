import asyncio

from support.metric_values import values as values_of_metric

from tidelog.v1 import log_service_pb2 as pb
from tidelog_foundation.errors import ErrorCode, error_for
from tidelog_foundation.records import read_records
from tidelog_node import handlers
from tidelog_node.handlers.requests import offsets as values
from tidelog_node.partitions import isr_changes, metrics
from tidelog_node.replication.isr_changes import IsrChangeSettings
from tidelog_node.server import log_service
from tidelog_quorum.metadata.records import RemoveTopicRecord


def values_of(result):
    return [bytes(r.value) for r in read_records(result.records)] if result.records else []


def metric(cluster, node_id, declared, *labels):
    registry = cluster.nodes[node_id].registry
    families = metrics.PartitionMetrics(registry, registry._directories).families()
    return values_of_metric((family for family in families if family is not None), declared)[labels]


def log_bytes(partition):
    return partition.log.read(0, 1 << 30, partition.log.log_end_offset)


def test_produce_acks_all_is_answered_when_all_replicas_have_it(cluster_of):
    async def run():
        async with cluster_of(1, 2, 3, min_isr=2) as cluster:
            await cluster.create_topic()

            result = await cluster.produce(1, b"a", b"b")

            assert not result.HasField("error"), result.error.message
            assert result.base_offset == 0
            assert cluster.partition(1).high_watermark == 2
            assert log_bytes(cluster.partition(2)) == log_bytes(cluster.partition(3)) == log_bytes(cluster.partition(1))
            assert values_of(await cluster.fetch(1)) == [b"a", b"b"]

            size = cluster.partition(1).log.size_in_bytes
            received = [metric(cluster, 1, each, "t") for each in (metrics.BYTES_IN, metrics.MESSAGES_IN)]
            assert received == [size, 2]
            assert metric(cluster, 1, metrics.BYTES_OUT, "t") == metric(cluster, 1, metrics.LOG_SIZE, "t") == size
            assert metric(cluster, 1, metrics.REPLICATED_OUT, "t") == 2 * size
            assert metric(cluster, 2, metrics.REPLICATED_IN, "t") == size
            assert metric(cluster, 2, metrics.BYTES_IN, "t") == 0

    asyncio.run(run())


def test_topic_that_is_created_during_a_scrape_keeps_its_counts(cluster_of, monkeypatch):
    monkeypatch.setattr(metrics, "_PARTITIONS_PER_STEP", 1)

    async def run():
        async with cluster_of(1) as cluster:
            await cluster.create_topic("t", (1,))
            registry = cluster.nodes[1].registry
            scrape = metrics.PartitionMetrics(registry, registry._directories).families()
            assert next(scrape) is None

            await cluster.create_topic("u", (1,), topic_id=b"u" * 16)
            registry.get("u", 0).traffic.bytes_in += 10

            families = [family for family in scrape if family is not None]
            assert values_of_metric(families, metrics.BYTES_IN)["u",] == 10
            assert values_of_metric(families, metrics.UNMEASURED)[()] == 0

    asyncio.run(run())


def test_produce_times_out_when_a_replica_of_the_isr_is_cut_off(cluster_of):
    async def run():
        async with cluster_of(1, 2, 3, min_isr=2) as cluster:
            cluster.transport.cut_off.add(3)
            await cluster.create_topic()

            result = await cluster.produce(1, b"a", timeout_ms=150)

            assert result.error.code == ErrorCode.REQUEST_TIMED_OUT.code
            assert values_of(await cluster.fetch(1)) == [], "not committed, so not visible"

    asyncio.run(run())


def test_isr_shrinks_without_the_cut_off_replica_and_grows_again(cluster_of, wait_for):
    async def run():
        async with cluster_of(1, 2, 3, min_isr=2, lag_ms=100) as cluster:
            await cluster.create_topic()
            await cluster.produce(1, b"a")
            cluster.transport.cut_off.add(3)
            pending = asyncio.create_task(cluster.produce(1, b"b", timeout_ms=5_000))
            await asyncio.sleep(0.15)

            cluster.partition(1).pass_time()
            assert not (await pending).HasField("error")
            assert cluster.controller.image.partition("t", 0).isr == (1, 2)
            await wait_for(lambda: metric(cluster, 1, metrics.ISR_SHRINKS) == 1)
            assert metric(cluster, 1, metrics.UNDER_REPLICATED) == metric(cluster, 1, metrics.AT_MIN_ISR) == 1
            assert metric(cluster, 1, metrics.UNDER_MIN_ISR) == metric(cluster, 2, metrics.LEADERS) == 0
            assert metric(cluster, 1, metrics.FOLLOWER_LAG, "3") == 1

            cluster.transport.cut_off.clear()
            await wait_for(lambda: set(cluster.controller.image.partition("t", 0).isr) == {1, 2, 3})
            await wait_for(lambda: metric(cluster, 1, metrics.ISR_EXPANDS) == 1)
            assert metric(cluster, 1, metrics.UNDER_REPLICATED) == metric(cluster, 1, metrics.AT_MIN_ISR) == 0
            assert log_bytes(cluster.partition(3)) == log_bytes(cluster.partition(1))

    asyncio.run(run())


def test_follower_says_once_why_it_cannot_copy_and_again_after_it_could(cluster_of, replace_method, wait_for, caplog):
    failures = []
    is_full = True

    def append(records, now_ms):
        if is_full:
            failures.append(now_ms)
            raise error_for(ErrorCode.CORRUPT_MESSAGE, "not what was sent")
        return original(log, records, now_ms)

    def warnings():
        return caplog.text.count("Fetching t-0 from node 1 failed: CORRUPT_MESSAGE: not what was sent")

    async def run():
        nonlocal is_full, log, original
        async with cluster_of(1, 2) as cluster:
            await cluster.create_topic(replicas=(1, 2))
            log = cluster.partition(2).log
            original = type(log).append_as_follower
            replace_method(log, "append_as_follower", append)
            await cluster.produce(1, b"a", acks=pb.ACKS_LEADER)
            await wait_for(lambda: len(failures) >= 4)
            assert warnings() == 1
            is_full = False
            await wait_for(lambda: log.log_end_offset == 1)
            is_full = True
            await cluster.produce(1, b"b", acks=pb.ACKS_LEADER)
            await wait_for(lambda: len(failures) >= 7)
            assert warnings() == 2

    log = original = None
    asyncio.run(run())


def test_produce_is_refused_before_the_append_when_the_isr_is_too_small(cluster_of):
    async def run():
        async with cluster_of(1, 2, 3, min_isr=2) as cluster:
            await cluster.create_topic()
            cluster.transport.cut_off.update((2, 3))
            await cluster.elect(1, isr=(1,))

            result = await cluster.produce(1, b"a")

            assert result.error.code == ErrorCode.NOT_ENOUGH_REPLICAS.code
            assert cluster.partition(1).log.log_end_offset == 0

    asyncio.run(run())


def test_isr_change_is_asked_again_when_the_controller_was_away(cluster_of, wait_for):
    async def run():
        async with cluster_of(1, 2, 3, lag_ms=50) as cluster:
            await cluster.create_topic()
            await cluster.produce(1, b"a")
            cluster.controller.refuse_with = ErrorCode.REQUEST_TIMED_OUT
            cluster.transport.cut_off.add(3)
            pending = asyncio.create_task(cluster.produce(1, b"b", timeout_ms=5_000))
            await asyncio.sleep(0.1)
            cluster.partition(1).pass_time()
            await asyncio.sleep(0.1)
            assert cluster.controller.image.partition("t", 0).isr == (1, 2, 3)

            cluster.controller.refuse_with = None
            await wait_for(lambda: cluster.controller.image.partition("t", 0).isr == (1, 2))
            assert not (await pending).HasField("error")

    asyncio.run(run())


def test_leadership_moves_and_the_old_leader_cuts_what_was_not_committed(cluster_of, wait_for):
    async def run():
        async with cluster_of(1, 2, 3, min_isr=2) as cluster:
            await cluster.create_topic()
            await cluster.produce(1, b"a")
            cluster.transport.cut_off.add(1)
            waiting = asyncio.create_task(cluster.produce(1, b"lost", timeout_ms=5_000))
            await asyncio.sleep(0.05)

            await cluster.elect(2, isr=(2, 3))
            assert (await waiting).error.code == ErrorCode.NOT_LEADER_OR_FOLLOWER.code
            assert not (await cluster.produce(2, b"kept")).HasField("error")

            cluster.transport.cut_off.clear()
            await wait_for(lambda: set(cluster.controller.image.partition("t", 0).isr) == {1, 2, 3})
            assert log_bytes(cluster.partition(1)) == log_bytes(cluster.partition(2))
            assert values_of(await cluster.fetch(2)) == [b"a"]
            assert values_of(await cluster.fetch(2, offset=1)) == [b"kept"]
            refused = await cluster.produce(1, b"x")
            assert (refused.error.code, refused.current_leader.leader_id) == (6, 2)

    asyncio.run(run())


def test_fetch_waits_for_records_and_ends_at_the_deadline(cluster_of):
    async def run():
        async with cluster_of(1) as cluster:
            await cluster.create_topic(replicas=(1,))
            started = asyncio.get_running_loop().time()
            assert values_of(await cluster.fetch(1, max_wait_ms=100)) == []
            assert 0.09 < asyncio.get_running_loop().time() - started < 1

            waiting = asyncio.create_task(cluster.fetch(1, max_wait_ms=5_000))
            await asyncio.sleep(0.02)
            await cluster.produce(1, b"a")
            assert values_of(await asyncio.wait_for(waiting, 1)) == [b"a"]
            partition = cluster.partition(1)
            assert len(partition.waiters.high_watermark) == len(partition.waiters.log_end) == 0

    asyncio.run(run())


def test_fetch_is_fenced_by_epoch_and_range(cluster_of):
    async def run():
        async with cluster_of(1) as cluster:
            await cluster.create_topic(replicas=(1,))
            await cluster.produce(1, b"a")
            await cluster.elect(1)

            older = await cluster.fetch(1, current_leader_epoch=0, max_wait_ms=1_000)
            newer = await cluster.fetch(1, current_leader_epoch=9, max_wait_ms=1_000)
            beyond = await cluster.fetch(1, offset=5, max_wait_ms=1_000)
            unknown = await cluster.fetch(1, index=7, max_wait_ms=1_000)

            assert older.error.code == ErrorCode.FENCED_LEADER_EPOCH.code
            assert older.current_leader.leader_epoch == 1
            assert newer.error.code == ErrorCode.UNKNOWN_LEADER_EPOCH.code
            assert beyond.error.code == ErrorCode.OFFSET_OUT_OF_RANGE.code
            assert (beyond.high_watermark, beyond.log_start_offset) == (1, 0)
            assert unknown.error.code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION.code

    asyncio.run(run())


def test_corrupt_and_oversized_batches_are_refused_and_nothing_is_stored(cluster_of, make_batch, make_produce_request):
    async def run():
        async with cluster_of(1) as cluster:
            await cluster.create_topic(replicas=(1,))
            context = cluster.nodes[1].context
            corrupt = bytearray(make_batch(b"a" * 50))
            corrupt[-3] ^= 1
            for records, acks, code in (
                (bytes(corrupt), pb.ACKS_ALL, ErrorCode.CORRUPT_MESSAGE),
                (b"", pb.ACKS_ALL, ErrorCode.CORRUPT_MESSAGE),
                (make_batch(b"a" * 2_000_000), pb.ACKS_LEADER, ErrorCode.MESSAGE_TOO_LARGE),
                (make_batch(b"a"), 9, ErrorCode.INVALID_REQUIRED_ACKS),
            ):
                response = await log_service.produce(context, make_produce_request(records, acks))
                assert response.topics[0].partitions[0].error.code == code.code
            assert cluster.partition(1).log.log_end_offset == 0
            assert (await cluster.produce(1, b"good")).base_offset == 0
            assert cluster.nodes[1].failures == []

    asyncio.run(run())


def test_list_offsets_finds_first_latest_and_by_time(cluster_of, make_batch, make_produce_request):
    async def run():
        async with cluster_of(1) as cluster:
            await cluster.create_topic(replicas=(1,))
            context = cluster.nodes[1].context
            for timestamp_ms in (1_000, 3_000, 2_000):
                request = make_produce_request(make_batch(b"x", timestamp_ms=timestamp_ms))
                await log_service.produce(context, request)

            async def ask(timestamp_ms):
                topic = values.ListOffsetsTopic("t", (values.ListOffsetsPartition(0, timestamp_ms),))
                response = await handlers.list_offsets(context, values.ListOffsetsRequest((topic,)))
                return response.topics[0].partitions[0]

            assert [(await ask(t)).offset for t in (-2, -1, -3, 0, 1_500, 3_001)] == [0, 3, 1, 0, 1, -1]
            assert (await ask(-7)).error.code is ErrorCode.INVALID_REQUEST

    asyncio.run(run())


def test_offset_is_not_listed_for_a_topic_of_another_id(cluster_of):
    async def run():
        async with cluster_of(1) as cluster:
            await cluster.create_topic(replicas=(1,))
            codes = []
            for topic_id in (b"", cluster.partition(1).topic_id, b"x" * 16):
                topic = values.ListOffsetsTopic("t", (values.ListOffsetsPartition(0, -1),), topic_id)
                response = await handlers.list_offsets(cluster.nodes[1].context, values.ListOffsetsRequest((topic,)))
                error = response.topics[0].partitions[0].error
                codes.append(error and error.code)
            assert codes == [None, None, ErrorCode.INCONSISTENT_TOPIC_ID]

    asyncio.run(run())


def test_offset_is_listed_with_the_leader_epoch_of_its_record(cluster_of):
    async def run():
        async with cluster_of(1) as cluster:
            await cluster.create_topic(replicas=(1,))
            await cluster.produce(1, b"a")
            await cluster.elect(1)
            await cluster.produce(1, b"b")
            items = tuple(values.ListOffsetsPartition(0, t) for t in (-2, -1, 0, 9_999))
            request = values.ListOffsetsRequest((values.ListOffsetsTopic("t", items),))
            response = await handlers.list_offsets(cluster.nodes[1].context, request)
            found = [(r.offset, r.leader_epoch) for r in response.topics[0].partitions]
            assert found == [(0, 0), (2, 1), (0, 0), (-1, -1)]

    asyncio.run(run())


def test_new_leader_hides_the_latest_offset_until_its_epoch_is_reached(cluster_of, wait_for):
    """Not all that was committed before is known to be yet: the end of the log would go back (KIP-207)."""

    async def run():
        async with cluster_of(1, 2, 3, min_isr=2) as cluster:
            await cluster.create_topic()
            cluster.transport.cut_off.add(3)
            await cluster.produce(1, b"a", acks=pb.ACKS_LEADER)
            await wait_for(lambda: cluster.partition(2).log.log_end_offset == 1)
            cluster.transport.cut_off.update((1, 2))
            await cluster.elect(2)

            async def listed(timestamp_ms, isolation=values.IsolationLevel.READ_UNCOMMITTED):
                topic = values.ListOffsetsTopic("t", (values.ListOffsetsPartition(0, timestamp_ms),))
                request = values.ListOffsetsRequest((topic,), isolation)
                response = await handlers.list_offsets(cluster.nodes[2].context, request)
                return response.topics[0].partitions[0]

            for timestamp_ms in (-1, -3, 1_000):
                assert (await listed(timestamp_ms)).error.code is ErrorCode.OFFSET_NOT_AVAILABLE
            committed = await listed(-1, values.IsolationLevel.READ_COMMITTED)
            assert committed.error.code is ErrorCode.OFFSET_NOT_AVAILABLE
            assert (await listed(-2)).offset == 0
            for offset in (0, 1):
                waiting = await cluster.fetch(2, offset)
                assert (waiting.error.code, waiting.records) == (0, b""), "it can be read soon"
            reading = asyncio.create_task(cluster.fetch(2, max_wait_ms=10_000))
            cluster.transport.cut_off.clear()
            assert values_of(await reading) == [b"a"]
            assert [(await listed(t)).offset for t in (-1, -3, 1_000)] == [1, 0, 0]

    asyncio.run(run())


def test_deleted_topic_is_gone_and_a_new_one_of_its_name_is_empty(cluster_of, tmp_path):
    async def run():
        async with cluster_of(1) as cluster:
            await cluster.create_topic(replicas=(1,), partitions=3)
            await cluster.produce(1, b"a")
            await cluster.controller.change(RemoveTopicRecord(b"0123456789abcdef"))
            folders = [p.name for p in (tmp_path / "node-1").iterdir() if p.is_dir()]
            assert [name for name in folders if not name.endswith("-delete")] == []

            await cluster.create_topic(replicas=(1,), topic_id=b"f" * 16)
            assert (await cluster.produce(1, b"b")).base_offset == 0
            stale = await cluster.fetch(1, max_wait_ms=0)
            assert values_of(stale) == [b"b"]

    asyncio.run(run())


def test_records_and_high_watermark_survive_a_restart(cluster_of):
    async def run():
        async with cluster_of(1) as cluster:
            await cluster.create_topic(replicas=(1,))
            await cluster.produce(1, b"a", b"b")
            await cluster.nodes[1].close()

            await cluster.start(1)
            await cluster.nodes[1].apply(cluster.controller.image)
            assert cluster.partition(1).high_watermark == 2
            assert values_of(await cluster.fetch(1)) == [b"a", b"b"]

    asyncio.run(run())


def test_one_bad_partition_does_not_stop_the_others(cluster_of, wait_for):
    async def run():
        async with cluster_of(1, 2, min_isr=2) as cluster:
            await cluster.create_topic(replicas=(1, 2), partitions=3)
            bad = cluster.partition(2, 1)
            bad.log.close()
            results = await asyncio.gather(*(cluster.produce(1, b"x", index=i, timeout_ms=500) for i in range(3)))
            assert [r.error.code for r in results] == [0, ErrorCode.REQUEST_TIMED_OUT.code, 0]
            assert cluster.transport.calls < 100, "a partition with an error waits before it is asked for again"

    asyncio.run(run())


def test_isr_changes_of_many_partitions_are_several_requests(cluster_of, wait_for, monkeypatch):
    monkeypatch.setattr(isr_changes, "SETTINGS", IsrChangeSettings(max_per_request=2))

    async def run():
        async with cluster_of(1, 2, lag_ms=50) as cluster:
            await cluster.create_topic(replicas=(1, 2), partitions=5)
            sizes, alter_partition = [], cluster.controller.alter_partition

            async def noted(request):
                sizes.append(sum(len(t.partitions) for t in request.topics))
                return await alter_partition(request)

            monkeypatch.setattr(cluster.controller, "alter_partition", noted)
            cluster.transport.cut_off.add(2)
            partitions = cluster.controller.image.topics["t"].partitions
            for index in partitions:
                await cluster.produce(1, b"a", acks=pb.ACKS_LEADER, index=index)
            await asyncio.sleep(0.1)
            for index in partitions:
                cluster.nodes[1].registry.get("t", index).pass_time()
            await wait_for(lambda: all(p.isr == (1,) for p in cluster.controller.image.topics["t"].partitions.values()))
            assert sizes == [2, 2, 1]

    asyncio.run(run())
