"""A follower's polls on the short way have the outcome of the general one: the same requests, logs and states."""

from __future__ import annotations

import asyncio

import pytest
from appends import without_short_appends
from hypothesis import example, given
from hypothesis import strategies as st
from unit.kafka.polled_leader import ANSWERS, PARTITIONS, Run, Step

from tidelog_node.kafka.client import calls, short_polls
from tidelog_node.partitions import short_replicate
from tidelog_node.partitions.fetchers import short_steps

pytestmark = pytest.mark.skipif(
    short_polls._POLLS is None or short_steps._STEPS is None, reason="the short way is not compiled"
)
CHANGES = (
    *("none", "none", "none", "none", "add", "remove", "elect", "retention"),
    *("throttled", "registration", "address", "no-address", "time"),
)
STEPS = st.tuples(
    st.sampled_from(CHANGES),
    st.integers(0, PARTITIONS - 1),
    st.one_of(st.sampled_from(ANSWERS), st.sampled_from(("records", "records-committed", "high-watermark", "empty"))),
    st.integers(0, PARTITIONS - 1),
)
RECORDS: Step = ("none", 0, "records", 0)
SEVERAL: Step = ("none", 0, "several", 0)
COMMITTED: Step = ("none", 0, "records-committed", 1)


def without_short_way(patch: pytest.MonkeyPatch) -> None:
    """Let all polls and their answers take the general way."""
    without_short_appends(patch)
    patch.setattr(short_steps, "_STEPS", None)
    patch.setattr(short_replicate, "replicate", short_replicate._never)


def around(kind):
    """Return a history with this answer among plain ones, for both partitions."""
    return [RECORDS, RECORDS, ("none", 0, kind, 0), RECORDS, ("none", 0, kind, 1), ("none", 0, "records", 1), RECORDS]


def among(change):
    """Return a history with this change of each partition among plain answers."""
    return [RECORDS, *((change, index, "records", index) for index in range(PARTITIONS)), RECORDS, RECORDS]


def both_ways(steps, tmp_path_factory, partitions=PARTITIONS):
    outcomes = []
    for is_short in (True, False):
        with pytest.MonkeyPatch.context() as patch:
            if not is_short:
                without_short_way(patch)
            outcomes.append(asyncio.run(Run(tmp_path_factory.mktemp("polls"), partitions=partitions).run(steps)))
    return outcomes


@pytest.mark.parametrize("kind", ANSWERS)
def test_short_way_equals_the_general_way_around_each_answer(kind, tmp_path_factory) -> None:
    short, general = both_ways(around(kind), tmp_path_factory)
    assert short == general


@pytest.mark.parametrize("change", sorted(set(CHANGES)))
def test_short_way_equals_the_general_way_at_each_change(change, tmp_path_factory) -> None:
    short, general = both_ways(among(change), tmp_path_factory)
    assert short == general


@pytest.mark.parametrize("partitions", [3, 16, 17, 18, 19])
def test_short_way_equals_the_general_way_with_many_partitions(partitions, tmp_path_factory) -> None:
    steps = [SEVERAL, SEVERAL, *around("large"), SEVERAL, ("add", partitions - 1, "several", 0), SEVERAL, SEVERAL]
    short, general = both_ways(steps, tmp_path_factory, partitions)
    assert short == general


@given(steps=st.lists(STEPS, min_size=2, max_size=12))
@example(steps=[RECORDS] * 12)
@example(steps=[COMMITTED] * 4 + [("retention", 1, "records", 0), ("time", 2, "records", 0), RECORDS, RECORDS])
@example(steps=[COMMITTED, ("throttled", 1, "large", 1), ("none", 0, "large", 1), ("none", 0, "behind", 1), RECORDS])
@example(steps=[RECORDS, RECORDS, ("no-address", 0, "records", 0), RECORDS, RECORDS])
def test_short_way_equals_the_general_way(steps, tmp_path_factory) -> None:
    short, general = both_ways(steps, tmp_path_factory)
    assert short == general


@pytest.mark.parametrize(
    "kind", ["records", "several", "records-committed", "high-watermark", "empty", "large", "in-pieces", "numbered"]
)
def test_frequent_polls_take_the_short_way(kind, tmp_path, monkeypatch) -> None:
    plain, general = calls.fetch_response, []
    monkeypatch.setattr(calls, "fetch_response", lambda *arguments: general.append(1) or plain(*arguments))
    steps = [("none", 0, kind, index % 2) for index in range(12)]
    [_, seen, *_] = asyncio.run(Run(tmp_path).run([RECORDS, *steps]))
    assert len(seen) >= 13
    assert len(general) == 1, "the answer to the full request"


def test_poll_on_the_short_way_has_its_own_timeout(tmp_path) -> None:
    async def run() -> None:
        polls = Run(tmp_path, timeout_ms=550)
        async with polls.serving():
            for _ in range(4):
                poll = await polls.leader.polls.get()
                await asyncio.sleep(0.25)
                await polls.answer(poll, "records")
            silent = await polls.leader.polls.get()
            assert silent.request.session.epoch == 4
            again = await polls.leader.polls.get()
            assert (again.request.session.epoch, len(again.request.wanted)) == (0, 2)
            [told] = [line for level, line in polls.lines.lines if level == "WARNING"]
            assert told.endswith(f"REQUEST_TIMED_OUT: the node at {polls.address} has not answered in 0.6 s")
            assert polls.follower.partitions[0].log.log_end_offset == 4

    asyncio.run(run())


def test_answer_to_a_poll_of_the_short_way_that_was_cancelled_is_dropped(tmp_path) -> None:
    async def run() -> None:
        polls = Run(tmp_path)
        async with polls.serving():
            for _ in range(3):
                await polls.step(*RECORDS)
            poll = await polls.leader.polls.get()
            polls.task.cancel()
            await asyncio.wait([polls.task])
            await polls.answer(poll, "records")
            free = polls.follower.transport._connections._free
            while not free.get(polls.address):  # noqa: ASYNC110 what is waited for has no event
                await asyncio.sleep(0.001)
            assert polls.follower.partitions[0].log.log_end_offset == 3
            assert polls.leader.polls.empty()

    asyncio.run(run())


def test_poll_of_the_short_way_ends_with_its_transport(tmp_path) -> None:
    async def run() -> None:
        polls = Run(tmp_path)
        async with polls.serving():
            for _ in range(3):
                await polls.step(*RECORDS)
            await polls.leader.polls.get()
            await polls.follower.transport.close()
            again = await polls.leader.polls.get()
            assert again.request.session.epoch == 0
            [(level, line)] = polls.lines.lines
            assert (level, "is lost" in line) == ("WARNING", True)

    asyncio.run(run())


def test_unexpected_error_on_the_short_way_is_logged_and_the_session_begins_anew(tmp_path) -> None:
    async def run() -> None:
        polls = Run(tmp_path)
        async with polls.serving():
            for _ in range(3):
                await polls.step(*RECORDS)
            poll = await polls.leader.polls.get()
            polls.follower.addresses.clear()
            await polls.answer(poll, "records")
            while not polls.lines.lines:  # noqa: ASYNC110 what is waited for has no event
                await asyncio.sleep(0.001)
            polls.follower.addresses.append(polls.address)
            again = await polls.leader.polls.get()
            assert again.request.session.epoch == 0
            assert again.request.wanted[polls.follower.partitions[0].topic_id, 0].fetch_offset == 4
            assert polls.lines.lines[0] == ("ERROR", "Fetching from node 2 failed with an unexpected error")

    asyncio.run(run())


def test_partition_that_falls_behind_on_the_short_way_is_read_ahead(tmp_path) -> None:
    async def run() -> None:
        polls = Run(tmp_path, reads_ahead=True)
        async with polls.serving():
            for _ in range(3):
                await polls.step(*RECORDS)
            await polls.step("none", 0, "behind", 0)
            arrived = [await polls.leader.polls.get() for _ in range(2)]
            [read] = [poll for poll in arrived if poll.request.replica is None]
            [poll] = [poll for poll in arrived if poll.request.replica is not None]
            assert list(read.request.wanted) == [(polls.follower.partitions[0].topic_id, 0)]
            assert [spec.fetch_offset for spec in read.request.wanted.values()] == [4]
            assert list(poll.request.forgotten) == list(read.request.wanted)

    asyncio.run(run())
