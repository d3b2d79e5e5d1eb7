"""A fetch of records that are on the disk waits for a thread, while the loop serves others."""

import asyncio
import functools
import inspect
import threading
from types import SimpleNamespace

import pytest
from unit.node.handlers.test_fetch_session_model import BATCH, World

from tidelog_foundation.records import RecordBatchBuilder
from tidelog_node.fetching import FetchRequest, FetchSpec, SessionStep
from tidelog_node.handlers.fetch import begin_fetch
from tidelog_node.log import log_reader

SIZE = len(BATCH)
BATCHES = 4


def in_loop(test):
    """Run a test in an event loop."""

    @functools.wraps(test)
    def run(*arguments, **named):
        asyncio.run(test(*arguments, **named))

    return run


@pytest.fixture
def world(monkeypatch):
    """Return a node whose partitions have committed batches, and whose readers are all far behind."""
    monkeypatch.setattr(log_reader, "_RECENT_BYTES", 0)
    world = World(has_sessions=False)
    for index in world.partitions:
        world.register(index, epoch=0, isr=(1,))
        for _ in range(BATCHES):
            world.append(index)
    yield world
    world.context.cold_reads.close()


def files_of(world, index=0):
    return world.partitions[index].log._local._files


def request(*indexes, offset=0, max_bytes=1 << 20, partition_bytes=1 << 20, **more):
    spec = FetchSpec(b"", offset, partition_bytes)
    return FetchRequest({("t", index): spec for index in indexes or (0,)}, max_bytes, **more)


def begin(world, asked):
    return begin_fetch(world.context, asked, lambda response: response)


def records(response, position=0):
    return response.topics["t"][position].records


@in_loop
async def test_records_on_the_disk_are_loaded_by_a_thread(world):
    files_of(world).cached_to = 0
    answer = begin(world, request())
    assert inspect.iscoroutine(answer)
    assert records(await answer) == b"".join(records(begin(world, request(offset=n)))[:SIZE] for n in range(BATCHES))
    assert files_of(world).read_aheads == [(BATCHES * SIZE, 0)]
    assert (world.context.cold_reads.fetches, world.context.cold_reads.bytes) == (1, BATCHES * SIZE)


@in_loop
async def test_records_in_memory_are_answered_at_once(world):
    assert len(records(begin(world, request()))) == BATCHES * SIZE
    assert files_of(world).read_aheads == []


@in_loop
async def test_readers_near_the_end_are_answered_at_once(world, monkeypatch):
    files_of(world).cached_to = 0
    monkeypatch.setattr(log_reader, "_RECENT_BYTES", 2 * SIZE)
    assert len(records(begin(world, request(offset=2)))) == 2 * SIZE
    assert inspect.iscoroutine(late := begin(world, request(offset=1)))
    assert len(records(await late)) == 3 * SIZE


@pytest.mark.parametrize("offset", [-1, BATCHES, BATCHES + 1])
@in_loop
async def test_offsets_without_records_load_nothing(world, offset):
    files_of(world).cached_to = 0
    assert not inspect.iscoroutine(begin(world, request(offset=offset)))


@in_loop
async def test_no_more_is_loaded_than_the_fetch_may_read(world):
    for index in (0, 1, 2):
        files_of(world, index).cached_to = 0
    await begin(world, request(0, 1, 2, max_bytes=3 * SIZE, partition_bytes=2 * SIZE))
    assert [files_of(world, index).read_aheads for index in (0, 1, 2)] == [
        [(BATCHES * SIZE, 0)],
        [(BATCHES * SIZE, 0)],
        [],
    ]


@in_loop
async def test_loop_serves_others_while_a_thread_reads(world):
    files, begun, done = files_of(world), threading.Event(), threading.Event()
    read_ahead = files.read_ahead

    def slow(handle, size, position):
        begun.set()
        assert done.wait(10)
        read_ahead(handle, size, position)

    files.read_ahead, files.cached_to = slow, 0
    waiting = asyncio.ensure_future(begin(world, request()))
    assert await asyncio.to_thread(begun.wait, 10)
    assert len(records(begin(world, request(1)))) == BATCHES * SIZE
    assert not waiting.done()
    done.set()
    assert len(records(await waiting)) == BATCHES * SIZE


@in_loop
async def test_follower_waits_for_the_disk_too(world):
    files_of(world).cached_to = 0
    answer = begin(world, request(replica=(2, 10)))
    assert inspect.iscoroutine(answer)
    assert len(records(await answer)) == BATCHES * SIZE


def access(*, is_remembered):
    """Return the permissions of a caller that may read all topics, of which the node remembers them or not."""
    return SimpleNamespace(remembers=lambda right, topic: is_remembered, has=lambda right, topic: True)


@in_loop
async def test_disk_is_not_read_for_callers_whose_permission_is_not_known(world):
    files_of(world).cached_to = 0
    assert not inspect.iscoroutine(begin(world, request(replica=(2, 10), is_denied=True)))
    assert not inspect.iscoroutine(begin(world, request(access=access(is_remembered=False))))
    answer = begin(world, request(access=access(is_remembered=True)))
    assert len(records(await answer)) == BATCHES * SIZE


@in_loop
async def test_partitions_that_a_session_has_not_read_to_the_end_are_loaded_too(world):
    opened = begin(world, request(0, 1, 2, max_bytes=SIZE, session=SessionStep(0, 0)))
    assert opened.session_id > 0
    for index in world.partitions:
        files_of(world, index).cached_to = 0
    answer = begin(world, FetchRequest({}, 1 << 20, session=SessionStep(opened.session_id, 1)))
    assert inspect.iscoroutine(answer)
    assert sum(len(result.records) for result in (await answer).topics["t"]) >= 2 * BATCHES * SIZE
    assert all(files_of(world, index).read_aheads for index in (1, 2))


@in_loop
async def test_reading_ahead_makes_no_fetch_wait(world):
    files_of(world).cached_to = SIZE
    assert len(records(begin(world, request(partition_bytes=SIZE)))) == SIZE
    world.context.cold_reads._consumers.shutdown()
    assert files_of(world).read_aheads == [(3 * SIZE, SIZE)]
    assert world.context.cold_reads.fetches == 0


def test_large_batches_are_looked_for_where_they_begin(world):
    builder = RecordBatchBuilder()
    builder.append(None, bytes(20_000), (), 0)
    large = builder.build()
    partition = world.partitions[1]
    for _ in range(4):
        partition.append(large, needs_all_replicas=False)
    files_of(world, 1).cached_to = BATCHES * SIZE
    for offset in range(BATCHES, BATCHES + 4):
        found = partition.log.uncached(offset, 1)
        start = BATCHES * SIZE + (offset - BATCHES) * len(large)
        assert found.position <= start < found.position + found.size
    partition.log.read(BATCHES, len(large), BATCHES + 4)
    found = partition.log.uncached(BATCHES + 1, 1)
    assert (found.position, found.size) == (BATCHES * SIZE + len(large), len(large))


def test_records_behind_those_that_are_read_are_read_ahead(world):
    files, file = files_of(world), world.partitions[0].log._local.segments.active._batches
    files.cached_to = 0
    for _ in range(BATCHES):
        world.append(0)
    file.uncached(SIZE, 0).load()
    for position in range(2 * BATCHES):
        ahead = file.uncached(SIZE, position * SIZE)
        if ahead is not None:
            assert ahead.size == 0
            ahead.load()
    assert files.read_aheads == [(5 * SIZE, 0), (4 * SIZE, 2 * SIZE), (4 * SIZE, 3 * SIZE), (4 * SIZE, 4 * SIZE)]
