"""A Raft engine's guarantees to the controller, for both engines; an engine declares features that only it has."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest
from engine_clusters import CLUSTERS, Capability, EngineCluster, EngineProcess, wait_until

from tidelog_foundation.errors import ErrorCode, TidelogError
from tidelog_quorum.raft.core.config import RaftConfig
from tidelog_quorum.raft.core.voters import Voter
from tidelog_quorum.raft.protocol import CommittedEntry, LeaderAndEpoch

FAST = RaftConfig(election_timeout_ms=300, heartbeat_interval_ms=30, max_trailing_entries=1_000)
# pysyncobj leaves an open file to the garbage collector.
pytestmark = pytest.mark.filterwarnings("ignore:unclosed file:ResourceWarning")

NewCluster = Callable[..., EngineCluster]


@pytest.fixture(params=list(CLUSTERS))
def new_cluster(request: pytest.FixtureRequest, tmp_path: Path) -> NewCluster:
    return lambda count=3, config=FAST: CLUSTERS[request.param](tmp_path, count, config)


async def propose_all(process: EngineProcess, numbers: range) -> list[int]:
    """Propose in bursts, as requests come in: some share a turn of the loop, some do not."""
    epoch = process.engine.leader.epoch
    indexes = []
    for number in numbers:
        indexes.append(process.engine.propose(b"%d" % number, epoch))
        if number % 7 == 0:
            await asyncio.sleep(0)
    return indexes


async def fails_with(code: ErrorCode, call: Awaitable[Any]) -> TidelogError:
    with pytest.raises(TidelogError) as failed:
        await call
    assert failed.value.code is code, failed.value
    return failed.value


async def change_voters(change: Callable[[], Awaitable[None]]) -> None:
    """Ask until no other change is under way, such as the leader's own notes of the voters' directory ids."""
    async with asyncio.timeout(10):
        while True:
            try:
                return await change()
            except TidelogError as error:
                if error.code is not ErrorCode.INVALID_REQUEST:
                    raise
            await asyncio.sleep(0.02)


def check_histories(listeners: list[Any]) -> None:
    """Assert that all logs are prefixes of one, and that no epoch has two leaders."""
    longest = max((x.entries for x in listeners), key=len)
    leaders: dict[int, int] = {}
    for listener in listeners:
        assert listener.entries == longest[: len(listener.entries)]
        epochs = [x.epoch for x in listener.leaders]
        assert epochs == sorted(epochs)
        for leader in listener.leaders:
            if leader.leader_id is not None:
                assert leaders.setdefault(leader.epoch, leader.leader_id) == leader.leader_id


def test_engine_commits_everything_in_order_without_gaps_on_every_voter(new_cluster: NewCluster) -> None:
    async def run() -> None:
        async with new_cluster() as cluster:
            leader = await cluster.leader()
            epoch = leader.engine.leader.epoch
            indexes = await propose_all(leader, range(300))
            # An engine may put entries of its own between them.
            assert all(before < after for before, after in itertools.pairwise(indexes))
            listeners = [p.listener for p in cluster.running.values()]
            await wait_until(lambda: all(len(x.payloads) == 300 for x in listeners))
            for listener in listeners:
                assert listener.payloads == [b"%d" % i for i in range(300)]
                assert {e.term for e in listener.entries if e.payload} == {epoch}
                assert [e.index for e in listener.entries if e.payload] == indexes
            check_histories(listeners)

    asyncio.run(run())


def test_engine_of_one_voter_leads_and_commits(new_cluster: NewCluster) -> None:
    async def run() -> None:
        async with new_cluster(1) as cluster:
            leader = await cluster.leader()
            [index] = await propose_all(leader, range(1))
            await wait_until(lambda: leader.listener.payloads == [b"0"])
            assert await leader.engine.read_barrier() >= index
            await fails_with(ErrorCode.INVALID_REQUEST, leader.engine.transfer_leadership(None, 500))

    asyncio.run(run())


def test_engine_announces_a_leader_before_the_first_entry_of_its_epoch(new_cluster: NewCluster) -> None:
    async def run() -> None:
        async with new_cluster() as cluster:
            leader = await cluster.leader()
            await leader.engine.transfer_leadership(None, 5_000)
            await cluster.leader()
            for process in cluster.running.values():
                announced = {x.epoch for x in process.listener.leaders if x.is_self}
                for epoch in announced:
                    await wait_until(lambda p=process, e=epoch: p.listener.last.term >= e)  # type: ignore[misc]
                    told = process.listener.order.index(LeaderAndEpoch(process.node_id, epoch, True))
                    first = next(e for e in process.listener.entries if e.term == epoch)
                    assert first.payload == b""
                    assert process.listener.order.index(first) > told
            check_histories([p.listener for p in cluster.running.values()])

    asyncio.run(run())


def test_engine_tells_who_has_a_vote_at_the_start(new_cluster: NewCluster) -> None:
    async def run() -> None:
        async with new_cluster() as cluster:
            for process in cluster.running.values():
                await wait_until(lambda p=process: bool(p.listener.voters))  # type: ignore[misc]
                assert process.listener.voters[-1].ids == (1, 2, 3)

    asyncio.run(run())


def test_engine_refuses_proposals_and_reads_where_it_does_not_lead(new_cluster: NewCluster) -> None:
    async def run() -> None:
        async with new_cluster() as cluster:
            leader = await cluster.leader()
            epoch = leader.engine.leader.epoch
            follower = cluster.followers()[0].engine
            for engine, proposed_in in ((follower, epoch), (leader.engine, epoch - 1), (leader.engine, epoch + 1)):
                with pytest.raises(TidelogError, match="NOT_CONTROLLER"):
                    engine.propose(b"x", proposed_in)
            await fails_with(ErrorCode.NOT_CONTROLLER, follower.read_barrier())
            await fails_with(ErrorCode.NOT_CONTROLLER, follower.transfer_leadership(None, 500))
            with pytest.raises(TidelogError, match="NOT_CONTROLLER"):
                follower.describe()

    asyncio.run(run())


def test_engine_that_is_cut_off_steps_down_and_commits_nothing(new_cluster: NewCluster) -> None:
    async def run() -> None:
        async with new_cluster() as cluster:
            leader = await cluster.leader()
            epoch = leader.engine.leader.epoch
            await leader.engine.read_barrier()
            others = [p.node_id for p in cluster.followers()]
            await cluster.stop(*others)
            before = len(leader.listener.entries)
            if leader.engine.leader.is_self:
                leader.engine.propose(b"alone", epoch)
                await fails_with(ErrorCode.NOT_CONTROLLER, leader.engine.read_barrier())
            await wait_until(lambda: not leader.engine.leader.is_self)
            assert len(leader.listener.entries) == before
            with pytest.raises(TidelogError, match="NOT_CONTROLLER"):
                leader.engine.propose(b"later", epoch)

    asyncio.run(run())


def test_engine_gives_the_index_of_a_lost_proposal_to_another_term_or_commits_it_as_it_was(
    new_cluster: NewCluster,
) -> None:
    async def run() -> None:
        async with new_cluster() as cluster:
            leader = await cluster.leader()
            epoch = leader.engine.leader.epoch
            await leader.engine.read_barrier()
            others = [p.node_id for p in cluster.followers()]
            await cluster.stop(*others)
            index = leader.engine.propose(b"unsure", epoch) if leader.engine.leader.is_self else 0
            await wait_until(lambda: not leader.engine.leader.is_self)
            for node_id in others:
                await cluster.start(node_id)
            second = await cluster.leader()
            assert second.engine.leader.epoch > epoch
            await propose_all(second, range(20))
            listeners = [p.listener for p in cluster.running.values()]
            await wait_until(lambda: all(x.payloads[-1:] == [b"19"] for x in listeners))
            check_histories(listeners)
            for listener in listeners:
                assert listener.payloads.count(b"unsure") <= 1
                found = next((e for e in listener.entries if e.index == index), None)
                if found is not None and found.term == epoch:
                    assert found.payload == b"unsure"
                else:
                    assert b"unsure" not in listener.payloads

    asyncio.run(run())


def test_engine_elects_another_leader_when_the_leader_stops(new_cluster: NewCluster) -> None:
    async def run() -> None:
        async with new_cluster() as cluster:
            first = await cluster.leader()
            await propose_all(first, range(100))
            await wait_until(lambda: len(first.listener.payloads) == 100)
            await cluster.stop(first.node_id)
            second = await cluster.leader()
            assert second.engine.leader.epoch > first.listener.leaders[-1].epoch - 1
            await propose_all(second, range(100, 200))
            again = await cluster.start(first.node_id)
            await wait_until(lambda: len(again.listener.payloads) == 200)
            assert again.listener.payloads == [b"%d" % i for i in range(200)]
            check_histories([p.listener for p in cluster.running.values()])

    asyncio.run(run())


def test_engine_keeps_its_log_when_all_voters_are_restarted(new_cluster: NewCluster) -> None:
    async def run() -> None:
        async with new_cluster() as cluster:
            leader = await cluster.leader()
            epoch = leader.engine.leader.epoch
            await propose_all(leader, range(100))
            await wait_until(lambda: all(len(p.listener.payloads) == 100 for p in cluster.running.values()))
            before = leader.listener.entries
            await cluster.stop_all()
            await asyncio.gather(*(cluster.start(node_id) for node_id in cluster.addresses))
            again = await cluster.leader()
            assert again.engine.leader.epoch > epoch
            index = await again.engine.read_barrier()
            assert index > len(before) - 1
            assert again.listener.committed[0].index == 1
            assert again.listener.entries[: len(before)] == before

    asyncio.run(run())


def test_engine_reads_what_was_committed_before_the_call(new_cluster: NewCluster) -> None:
    async def run() -> None:
        async with new_cluster() as cluster:
            leader = await cluster.leader()
            for number in range(10):
                [index] = await propose_all(leader, range(number, number + 1))
                await wait_until(lambda i=index: leader.listener.last.index >= i)  # type: ignore[misc]
                barrier = await leader.engine.read_barrier()
                assert barrier >= index
                assert leader.listener.last.index >= index
            answers = await asyncio.gather(*(leader.engine.read_barrier() for _ in range(20)))
            assert min(answers) >= index

    asyncio.run(run())


def test_engine_hands_the_leadership_to_the_voter_that_is_named(new_cluster: NewCluster) -> None:
    async def run() -> None:
        async with new_cluster() as cluster:
            leader = await cluster.leader()
            epoch = leader.engine.leader.epoch
            await propose_all(leader, range(50))
            heir = cluster.followers()[-1].node_id
            assert await leader.engine.transfer_leadership(heir, 10_000) == heir
            second = await cluster.leader()
            assert second.node_id == heir
            assert second.engine.leader.epoch > epoch
            await propose_all(second, range(50, 60))
            listeners = [p.listener for p in cluster.running.values()]
            await wait_until(lambda: all(x.payloads[-1:] == [b"59"] for x in listeners))
            check_histories(listeners)
            await fails_with(ErrorCode.VOTER_NOT_FOUND, second.engine.transfer_leadership(9, 500))

    asyncio.run(run())


def test_engine_goes_on_leading_when_nobody_can_take_over(new_cluster: NewCluster) -> None:
    async def run() -> None:
        async with new_cluster() as cluster:
            leader = await cluster.leader()
            await leader.engine.read_barrier()
            gone = cluster.followers()[0].node_id
            await cluster.stop(gone)
            await propose_all(leader, range(10))
            await fails_with(ErrorCode.REQUEST_TIMED_OUT, leader.engine.transfer_leadership(gone, 600))
            await propose_all(leader, range(10, 11))
            await wait_until(lambda: len(leader.listener.payloads) == 11)

    asyncio.run(run())


def test_engine_describes_the_quorum_where_it_leads(new_cluster: NewCluster) -> None:
    async def run() -> None:
        async with new_cluster() as cluster:
            leader = await cluster.leader()
            await propose_all(leader, range(50))
            listeners = [p.listener for p in cluster.running.values()]
            await wait_until(lambda: all(len(x.payloads) == 50 for x in listeners))
            await wait_until(lambda: len({v.log_end_offset for v in leader.engine.describe().voters}) == 1)
            await wait_until(lambda: leader.engine.describe().high_watermark == leader.listener.last.index)
            quorum = leader.engine.describe()
            assert (quorum.leader_id, quorum.leader_epoch) == (leader.node_id, leader.engine.leader.epoch)
            assert (quorum.snapshot_offset, quorum.log_start_offset) == (-1, 1)
            assert [(v.replica_id, v.endpoint.host, v.endpoint.port) for v in quorum.voters] == [
                (v.voter_id, *cluster.addresses[v.voter_id]) for v in cluster.voters
            ]
            own = next(v for v in quorum.voters if v.replica_id == leader.node_id)
            assert (own.last_fetch_age_ms, own.last_caught_up_age_ms) == (0, 0)
            assert all(0 <= v.last_fetch_age_ms < 5_000 for v in quorum.voters)
            assert quorum.observers == ()

    asyncio.run(run())


def test_engine_starts_from_its_snapshot_and_the_log_behind_it(new_cluster: NewCluster) -> None:
    async def run() -> None:
        async with new_cluster(1) as cluster:
            leader = await cluster.leader()
            await propose_all(leader, range(50))
            await wait_until(lambda: len(leader.listener.payloads) == 50)
            delivered = leader.listener.last.index
            assert leader.engine.latest_snapshot().size_bytes == 0
            snapshot_index, log_start = await leader.engine.take_snapshot()
            taken = leader.engine.latest_snapshot()
            assert taken.size_bytes > 0
            assert taken.age_ms < 10_000
            # The engine's own entries, as one for the voters, may come meanwhile.
            assert delivered <= snapshot_index <= leader.listener.last.index
            assert log_start <= snapshot_index + 1
            await propose_all(leader, range(50, 80))
            await wait_until(lambda: len(leader.listener.payloads) == 80)
            quorum = leader.engine.describe()
            assert (quorum.snapshot_offset, quorum.log_start_offset) == (snapshot_index, log_start)
            await cluster.stop_all()
            again = await cluster.start(1)
            await wait_until(lambda: len(again.listener.payloads) == 80)
            assert again.listener.restored_at == [snapshot_index]
            assert again.engine.latest_snapshot().size_bytes == taken.size_bytes, "the size of the loaded one"
            assert again.listener.committed[0].index == snapshot_index + 1
            assert again.listener.payloads == [b"%d" % i for i in range(80)]

    asyncio.run(run())


def test_engine_sends_a_snapshot_to_a_voter_that_is_behind_the_log(new_cluster: NewCluster) -> None:
    async def run() -> None:
        async with new_cluster() as cluster:
            leader = await cluster.leader()
            await propose_all(leader, range(10))
            await leader.engine.read_barrier()
            late = cluster.followers()[0].node_id
            await cluster.stop(late)
            # More than an engine keeps before its snapshot for those that are a little behind.
            size = 2_500
            await propose_all(leader, range(10, size))
            await wait_until(lambda: len(leader.listener.payloads) == size)
            snapshot_index, _ = await leader.engine.take_snapshot()
            await propose_all(leader, range(size, size + 10))
            await wait_until(lambda: len(leader.listener.payloads) == size + 10)
            again = await cluster.start(late)
            await wait_until(lambda: len(again.listener.payloads) == size + 10, 30)
            assert again.listener.restored_at == [snapshot_index]
            check_histories([p.listener for p in cluster.running.values()])

    asyncio.run(run())


def test_engine_has_no_snapshot_to_take_before_anything_is_committed(new_cluster: NewCluster) -> None:
    async def run() -> None:
        cluster = new_cluster()
        try:
            alone = await cluster.start(1)
            await fails_with(ErrorCode.SNAPSHOT_NOT_FOUND, alone.engine.take_snapshot())
        finally:
            await cluster.stop_all()

    asyncio.run(run())


def test_engine_is_silent_after_its_stop(new_cluster: NewCluster) -> None:
    async def run() -> None:
        async with new_cluster() as cluster:
            leader = await cluster.leader()
            epoch = leader.engine.leader.epoch
            await leader.engine.read_barrier()
            await cluster.stop(leader.node_id)
            assert not leader.engine.leader.is_self
            with pytest.raises(TidelogError, match="NOT_CONTROLLER"):
                leader.engine.propose(b"x", epoch)
            await fails_with(ErrorCode.NOT_CONTROLLER, leader.engine.read_barrier())
            second = await cluster.leader()
            # The listener of the stopped engine refuses calls; these would reach it.
            await propose_all(second, range(10))
            await wait_until(lambda: len(second.listener.payloads) == 10)

    asyncio.run(run())


def test_engine_fails_when_its_listener_raises(new_cluster: NewCluster, caplog: pytest.LogCaptureFixture) -> None:
    async def run() -> None:
        async with new_cluster(1) as cluster:
            leader = await cluster.leader()
            epoch = leader.engine.leader.epoch
            await leader.engine.read_barrier()

            def refuse(_entries: list[CommittedEntry]) -> None:
                raise KeyError("no such broker")

            leader.listener.on_commit = refuse  # type: ignore[assignment,method-assign]
            leader.engine.propose(b"x", epoch)
            with pytest.raises(TidelogError, match="error id") as failed:
                await asyncio.wait_for(leader.engine.wait_failed(), 10)
            assert failed.value.message.rpartition(" ")[2] in caplog.text
            assert "no such broker" in caplog.text
            assert not leader.engine.leader.is_self
            assert leader.listener.leaders[-1].leader_id is None
            with pytest.raises(TidelogError, match="error id"):
                leader.engine.propose(b"x", epoch)

    asyncio.run(run())


def test_engine_fails_when_its_listener_cannot_give_a_snapshot(
    new_cluster: NewCluster, caplog: pytest.LogCaptureFixture
) -> None:
    async def run() -> None:
        async with new_cluster(1) as cluster:
            leader = await cluster.leader()
            await propose_all(leader, range(5))
            await wait_until(lambda: len(leader.listener.payloads) == 5)

            def refuse() -> list[bytes]:
                raise KeyError("no such image")

            leader.listener.capture = refuse  # type: ignore[method-assign]
            taken = asyncio.ensure_future(leader.engine.take_snapshot())
            with pytest.raises(TidelogError, match="error id"):
                await asyncio.wait_for(leader.engine.wait_failed(), 10)
            assert "no such image" in caplog.text
            with pytest.raises(TidelogError):
                await asyncio.wait_for(taken, 10)

    asyncio.run(run())


def test_engine_refuses_the_folder_of_another_cluster(new_cluster: NewCluster) -> None:
    async def run() -> None:
        cluster = new_cluster(1)
        await cluster.start(1)
        await cluster.stop(1)
        await fails_with(ErrorCode.INCONSISTENT_CLUSTER_ID, cluster.start(1, cluster_id="another"))
        await cluster.stop_all()

    asyncio.run(run())


def test_engine_changes_its_voters_if_it_declares_to(new_cluster: NewCluster) -> None:
    async def run() -> None:
        async with new_cluster() as cluster:
            leader = await cluster.leader()
            await leader.engine.read_barrier()
            gone = cluster.followers()[0].node_id
            if Capability.MEMBERSHIP not in cluster.capabilities:
                await fails_with(ErrorCode.UNSUPPORTED_VERSION, leader.engine.remove_voter(gone, b"", 1_000))
                voter = Voter.at(4, "127.0.0.1", 1)
                await fails_with(ErrorCode.UNSUPPORTED_VERSION, leader.engine.add_voter(voter, 1_000))
                return
            await change_voters(lambda: leader.engine.remove_voter(gone, b"", 5_000))
            left = tuple(i for i in (1, 2, 3) if i != gone)
            await wait_until(lambda: leader.listener.voters[-1].ids == left)
            again = change_voters(lambda: leader.engine.remove_voter(gone, b"", 5_000))
            await fails_with(ErrorCode.VOTER_NOT_FOUND, again)
            assert [v.replica_id for v in leader.engine.describe().voters] == list(left)
            await wait_until(lambda: [v.replica_id for v in leader.engine.describe().observers] == [gone])
            host, port = cluster.addresses[gone]
            await change_voters(lambda: leader.engine.add_voter(Voter.at(gone, host, port), 10_000))
            listeners = [p.listener for p in cluster.running.values()]
            await wait_until(lambda: all(x.voters[-1].ids == (1, 2, 3) for x in listeners))
            known = next(v for v in cluster.voters if v.voter_id == leader.node_id)
            again = change_voters(lambda: leader.engine.add_voter(known, 1_000))
            await fails_with(ErrorCode.DUPLICATE_VOTER, again)

    asyncio.run(run())
