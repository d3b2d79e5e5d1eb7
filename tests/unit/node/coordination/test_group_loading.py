"""Loading a shard: the view and the log's tail give what the whole log gives, whatever happened to either."""

import asyncio
import contextlib
import threading
from dataclasses import dataclass
from types import SimpleNamespace

import pytest

from tidelog_foundation.errors import ErrorCode, TidelogError, error_for
from tidelog_foundation.records import RecordBatchBuilder
from tidelog_node.coordination import shard_loader
from tidelog_node.coordination.group_coordinator import VIEW_FOLDER
from tidelog_node.coordination.shard_loader import LeadershipEndedError, ShardLoader
from tidelog_node.coordination.view_layout import ShardName
from tidelog_node.coordination.views import ShardViews
from tidelog_node.groups.records import OffsetCommitKey, encode_key
from tidelog_node.log import LogConfig, PartitionLog

TOPIC_ID = b"0123456789abcdef"
HOUR_MS = 3_600_000
NOW_MS = 1_700_000_000_000


@dataclass
class LedPartition:
    """The part of a partition that a loader needs."""

    log: PartitionLog
    index: int = 3
    topic_id: bytes = TOPIC_ID
    committed: int | None = None

    @property
    def high_watermark(self):
        return self.log.log_end_offset if self.committed is None else self.committed

    def write(self, epoch=0, **values):
        """Write a batch: group=value, None deletes."""
        builder = RecordBatchBuilder()
        for group, value in values.items():
            builder.append(encode_key(OffsetCommitKey(group, "t", 0)), value and value.encode(), (), NOW_MS)
        self.log.append_as_leader(builder.build(), epoch, NOW_MS)


class Loading:
    def __init__(self, path):
        self.path = path
        self.now_ms = NOW_MS
        self.is_leading = True
        self.woken = asyncio.Event()
        self.views = ShardViews(lambda: [path], VIEW_FOLDER)
        self.reads = []
        self.fails_at_read = None
        self._logs = []

    def open_log(self, name="log"):
        log = PartitionLog.open(self.path / name, LogConfig(segment_bytes=2_000, delete_retention_ms=24 * HOUR_MS))
        self._logs.append(log)
        return LedPartition(log)

    async def load(self, partition):
        """Return the groups' values after a load; ``reads`` are the offsets that the log was read from."""
        self.reads = []

        def read(offset, max_bytes, end_offset):
            self.reads.append(offset)
            if len(self.reads) == self.fails_at_read:
                raise error_for(ErrorCode.KAFKA_STORAGE_ERROR, "for the test")
            return partition.log.read(offset, max_bytes, end_offset)

        log = SimpleNamespace(read=read)
        for name in ("log_start_offset", "log_end_offset", "end_offset_for_epoch", "epoch_entries", "config"):
            setattr(log, name, getattr(partition.log, name))
        seen = SimpleNamespace(
            log=log, index=partition.index, topic_id=partition.topic_id, high_watermark=partition.high_watermark
        )
        clock = SimpleNamespace(wall_ms=lambda: self.now_ms, monotonic_ms=lambda: self.now_ms)
        loader = ShardLoader(seen, lambda: self.is_leading, self.woken, self.views, clock)
        shard = await loader.load(await self.views.current())
        return {group: shard.records_of(group)[0].value.decode() for group in shard.ids()}

    async def restart(self):
        await self.views.close()
        self.views = ShardViews(lambda: [self.path], VIEW_FOLDER)

    async def close(self):
        await self.views.close()
        for log in self._logs:
            log.close()


@pytest.fixture
def loading(tmp_path):
    @contextlib.asynccontextmanager
    async def start():
        state = Loading(tmp_path)
        try:
            yield state
        finally:
            await state.close()

    return start


def test_load_reads_only_what_is_not_in_the_view(loading):
    async def run():
        async with loading() as state:
            partition = state.open_log()
            for number in range(200):
                partition.write(a=f"{number}", b=f"{number}")
            partition.write(b=None)
            assert await state.load(partition) == {"a": "199"}
            assert state.reads[0] == 0

            await state.restart()
            partition.write(c="1")
            assert await state.load(partition) == {"a": "199", "c": "1"}
            assert state.reads == [401]

            assert await state.load(partition) == {"a": "199", "c": "1"}
            assert state.reads == []

    asyncio.run(run())


def test_load_after_an_unclean_election_forgets_what_the_log_lost(loading):
    async def run():
        async with loading() as state:
            partition = state.open_log()
            partition.write(a="1")
            partition.write(a="2", lost="1")
            assert await state.load(partition) == {"a": "2", "lost": "1"}

            partition.log.truncate_to(1)
            assert await state.load(partition) == {"a": "1"}, "the view was beyond the log's end"

            partition.write(epoch=1, a="3", b="1")
            partition.write(epoch=1, a="4")
            assert await state.load(partition) == {"a": "4", "b": "1"}
            partition.log.truncate_to(1)
            for number in range(5):
                partition.write(epoch=2, a=f"new {number}")
            assert await state.load(partition) == {"a": "new 4"}, "the same offset, in another leader epoch"
            assert state.reads[0] == 0

            other = state.open_log("other")
            for number in range(20):
                other.write(epoch=1, a=f"old {number}")
            other.write(epoch=3, a="newest")
            assert await state.load(other) == {"a": "newest"}, "epoch 2 is not in a log that is longer without it"
            assert state.reads[0] == 0

    asyncio.run(run())


def test_load_begins_anew_where_deletions_may_have_been_missed(loading):
    async def run():
        async with loading() as state:
            partition = state.open_log()
            partition.write(kept="1", deleted="1")
            await state.load(partition)
            # Meanwhile the others led; what deleted the group came and was cleaned away.
            compacted = state.open_log("compacted")
            compacted.write(kept="1", later="1")
            compacted.write(later="2")

            state.now_ms += 11 * HOUR_MS
            assert await state.load(compacted) == {"kept": "1", "deleted": "1", "later": "2"}
            state.now_ms += 13 * HOUR_MS
            compacted.write(later="3")
            assert await state.load(compacted) == {"kept": "1", "later": "3"}

            state.now_ms += 1_000 * HOUR_MS
            await state.load(compacted)
            assert state.reads == [], "the log has nothing that the view has not"

    asyncio.run(run())


def test_load_that_was_interrupted_goes_on_where_it_was(loading, monkeypatch):
    monkeypatch.setattr(shard_loader, "_READ_BYTES", 1_000)

    async def run():
        async with loading() as state:
            partition = state.open_log()
            for number in range(100):
                partition.write(**{f"g{number}": "1"})
            state.fails_at_read = 4
            with pytest.raises(TidelogError, match="for the test"):
                await state.load(partition)
            assert 0 < state.reads[-1] < 90
            stopped_at, state.fails_at_read = state.reads[-1], None
            assert await state.load(partition) == {f"g{number}": "1" for number in range(100)}
            assert state.reads[0] == stopped_at

    asyncio.run(run())


def test_long_load_is_not_repeated_after_a_crash(loading, monkeypatch, wait_for):
    monkeypatch.setattr(shard_loader, "_MANY_RECORDS", 10)

    async def run():
        async with loading() as state:
            partition = state.open_log()
            for number in range(20):
                partition.write(a=f"{number}")
            await state.load(partition)
            tables = (await state.views.current()).directory
            await wait_for(lambda: list(tables.glob("*.sst")))

    asyncio.run(run())


def test_cancelled_load_has_left_the_thread_when_it_ends(loading):
    async def run():
        async with loading() as state:
            may_end, has_ended = threading.Event(), threading.Event()

            def apply():
                may_end.wait(5)
                has_ended.set()

            task = asyncio.create_task(state.views.in_thread(apply))
            await asyncio.sleep(0.02)
            task.cancel()
            assert not (await asyncio.wait([task], timeout=0.05))[0]
            may_end.set()
            await asyncio.wait([task])
            assert task.cancelled()
            assert has_ended.is_set()

    asyncio.run(run())


def test_load_of_a_topic_that_was_created_again_has_nothing_of_the_one_before(loading):
    async def run():
        async with loading() as state:
            partition = state.open_log()
            partition.write(a="1")
            assert await state.load(partition) == {"a": "1"}
            again = state.open_log("again")
            again.topic_id = b"f" * 16
            again.write(b="1")
            assert await state.load(again) == {"b": "1"}

    asyncio.run(run())


def test_load_begins_anew_when_the_log_starts_behind_the_view(loading):
    async def run():
        async with loading() as state:
            partition = state.open_log()
            partition.write(a="1")
            await state.load(partition)
            partition.log.truncate_fully_and_start_at(100)
            partition.write(b="1")
            assert await state.load(partition) == {"b": "1"}
            assert state.reads == [100]

    asyncio.run(run())


def test_load_waits_until_all_that_is_in_the_log_is_committed(loading):
    async def run():
        async with loading() as state:
            partition = state.open_log()
            partition.write(a="1")
            partition.write(a="2")
            partition.committed = 1
            clock = SimpleNamespace(wall_ms=lambda: NOW_MS, monotonic_ms=lambda: NOW_MS)
            loader = ShardLoader(partition, lambda: state.is_leading, state.woken, state.views, clock)
            task = asyncio.create_task(loader.load(await state.views.current()))
            state.woken.set()
            assert not (await asyncio.wait([task], timeout=0.05))[0]
            partition.committed = 2
            state.woken.set()
            shard = await task
            assert shard.last.offset == 2

            partition.committed = 1
            task = asyncio.create_task(loader.load(await state.views.current()))
            await asyncio.sleep(0)
            state.is_leading = False
            state.woken.set()
            with pytest.raises(LeadershipEndedError):
                await task

    asyncio.run(run())


def test_view_that_breaks_is_replaced_once_for_all_who_use_it(loading, caplog):
    async def run():
        async with loading() as state:
            view = await state.views.current()
            view.shard(ShardName(1, TOPIC_ID)).apply([], None)
            others = await asyncio.gather(*(state.views.current(broken=view) for _ in range(3)))
            assert len(set(map(id, others))) == 1
            assert others[0] is not view
            assert await state.views.current(broken=view) is others[0]
            assert caplog.text.count("is broken and is recreated") == 1

    asyncio.run(run())
