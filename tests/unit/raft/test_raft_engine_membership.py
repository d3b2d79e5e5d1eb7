"""Engines that come and go: observers, voters added and removed, leadership handed over."""

from __future__ import annotations

import asyncio
import shutil
from collections.abc import Callable
from typing import Any

import pytest

from tidelog_foundation.errors import ErrorCode, TidelogError
from tidelog_quorum.raft.core.config import RaftConfig, SnapshotConfig
from tidelog_quorum.raft.core.voters import Voter, VoterSet

FAST = RaftConfig(election_timeout_ms=500, heartbeat_interval_ms=50, max_trailing_entries=5)
Engines = Callable[..., Any]
WaitUntil = Callable[..., Any]


async def commit(process: Any, payload: bytes) -> None:
    """Propose and wait until it is committed."""
    async with asyncio.timeout(15):
        index = process.engine.propose(payload, process.engine.leader.epoch)
        while process.listener.last_index < index:  # noqa: ASYNC110
            await asyncio.sleep(0.001)


def voter_of(cluster: Any, node_id: int) -> Voter:
    return Voter.at(node_id, *cluster.addresses[node_id])


def addresses_in(voters: VoterSet) -> dict[int, tuple[str, int] | None]:
    return {i: voters.address(i) for i in voters.ids}


def test_engines_tell_each_other_their_directory_ids(new_engines: Engines, wait_until: WaitUntil) -> None:
    async def run() -> None:
        async with new_engines(3, FAST) as cluster:
            directories = {i: p.engine.directory_id for i, p in cluster.running.items()}
            assert all(len(d) == 16 for d in directories.values())
            for process in cluster.running.values():
                await wait_until(
                    lambda p=process: {v.voter_id: v.directory_id for v in p.listener.voters} == directories
                )

    asyncio.run(run())


def test_observer_follows_the_log_and_never_counts(new_engines: Engines, wait_until: WaitUntil) -> None:
    async def run() -> None:
        async with new_engines(1, FAST, others=1) as cluster:
            leader = await cluster.settled_leader()
            await commit(leader, b"before")
            observer = await cluster.start(2)
            await commit(leader, b"after")
            await wait_until(lambda: observer.listener.payloads == [b"before", b"after"])
            assert observer.engine.leader.leader_id == 1
            description = leader.engine.describe()
            assert [v.replica_id for v in description.voters] == [1]
            [seen] = description.observers
            assert (seen.replica_id, seen.directory_id) == (2, observer.engine.directory_id)
            assert (seen.endpoint.host, seen.endpoint.port) == cluster.addresses[2]
            await cluster.stop(2)
            await commit(leader, b"alone")

    asyncio.run(run())


def test_observer_that_only_knows_a_bootstrap_address_finds_the_quorum(
    new_engines: Engines, wait_until: WaitUntil
) -> None:
    async def run() -> None:
        async with new_engines(2, FAST, others=1) as cluster:
            leader = await cluster.settled_leader()
            # First: the start of another process may take so long that this one leads no more.
            await commit(leader, b"x")
            observer = await cluster.start(3, voters=VoterSet(), bootstrap=list(cluster.addresses.values()))
            await wait_until(lambda: observer.listener.payloads == [b"x"])
            assert observer.listener.voters.ids == (1, 2)

    asyncio.run(run())


def test_voter_is_added_and_removed_again(new_engines: Engines, wait_until: WaitUntil) -> None:
    async def run() -> None:
        policy = SnapshotConfig(max_bytes_between=2**40, max_interval_ms=0, chunk_bytes=100)
        async with new_engines(1, FAST, others=1, snapshots=policy) as cluster:
            leader = await cluster.settled_leader()
            for number in range(50):
                await commit(leader, b"%d" % number)
            await leader.engine.take_snapshot()
            joining = await cluster.start(2)
            await wait_until(lambda: bool(leader.engine.describe().observers))
            await leader.engine.add_voter(voter_of(cluster, 2), 10_000)
            assert [v.replica_id for v in leader.engine.describe().voters] == [1, 2]
            with pytest.raises(TidelogError) as twice:
                await leader.engine.add_voter(voter_of(cluster, 2), 10_000)
            assert twice.value.code is ErrorCode.DUPLICATE_VOTER
            await wait_until(lambda: joining.listener.voters.ids == (1, 2))
            await leader.engine.remove_voter(2, b"", 10_000)
            assert [v.replica_id for v in leader.engine.describe().voters] == [1]
            await cluster.stop(2)
            await commit(leader, b"alone")

    asyncio.run(run())


def test_leader_that_is_removed_hands_over_and_follows(new_engines: Engines, wait_until: WaitUntil) -> None:
    async def run() -> None:
        async with new_engines(3, FAST) as cluster:
            leader = await cluster.settled_leader()
            leader_id = leader.engine.leader.leader_id
            await commit(leader, b"before")
            await leader.engine.remove_voter(leader_id, b"", 10_000)
            await wait_until(lambda: leader.engine.leader.leader_id not in (None, leader_id))
            new = cluster.running[leader.engine.leader.leader_id]
            await wait_until(lambda: new.engine.leader.is_self)
            await commit(new, b"after")
            await wait_until(lambda: leader.listener.payloads == [b"before", b"after"])
            assert leader_id not in new.listener.voters

    asyncio.run(run())


def test_changes_of_voters_are_refused_with_their_reasons(new_engines: Engines) -> None:
    async def run() -> None:
        async with new_engines(2, FAST) as cluster:
            leader = await cluster.settled_leader()
            follower = next(p for p in cluster.running.values() if p is not leader)
            await leader.engine.read_barrier()

            async def code_of(call: Any) -> ErrorCode:
                with pytest.raises(TidelogError) as refused:
                    await call
                return refused.value.code

            assert await code_of(leader.engine.add_voter(Voter.at(9, "h", 1), 200)) is ErrorCode.VOTER_NOT_FOUND
            assert await code_of(leader.engine.remove_voter(9, b"", 200)) is ErrorCode.VOTER_NOT_FOUND
            assert await code_of(leader.engine.transfer_leadership(9, 200)) is ErrorCode.VOTER_NOT_FOUND
            assert await code_of(follower.engine.remove_voter(1, b"", 200)) is ErrorCode.NOT_CONTROLLER
            assert await code_of(follower.engine.transfer_leadership(None, 200)) is ErrorCode.NOT_CONTROLLER
            with pytest.raises(TidelogError, match="NOT_CONTROLLER"):
                follower.engine.describe()

    asyncio.run(run())


def test_change_of_voters_ends_with_the_leadership_and_not_with_its_time(new_engines: Engines) -> None:
    async def run() -> None:
        config = RaftConfig(election_timeout_ms=2_000, heartbeat_interval_ms=100)
        async with new_engines(3, config) as cluster:
            leader = await cluster.settled_leader()
            others = [i for i, p in cluster.running.items() if p is not leader]
            await asyncio.gather(*map(cluster.stop, others))
            async with asyncio.timeout(10):
                with pytest.raises(TidelogError, match=r"change of the voters at offset \d+ may still be made") as lost:
                    await leader.engine.remove_voter(others[0], b"", 600_000)
            assert lost.value.code is ErrorCode.NOT_CONTROLLER

    asyncio.run(run())


def test_voter_that_starts_again_at_another_address_is_found_by_all(
    new_engines: Engines, wait_until: WaitUntil
) -> None:
    async def run() -> None:
        async with new_engines(3, FAST, others=1) as cluster:
            leader = await cluster.settled_leader()
            await commit(leader, b"before")
            moved = next(i for i, p in cluster.running.items() if p is not leader)
            await cluster.stop(moved)
            cluster.addresses[moved] = cluster.addresses.pop(4)
            again = await cluster.start(moved)
            await wait_until(
                lambda: all(
                    p.listener.voters.address(moved) == cluster.addresses[moved] for p in cluster.running.values()
                )
            )
            leader = await cluster.leader()
            await commit(leader, b"after")
            await wait_until(lambda: again.listener.payloads == [b"before", b"after"])
            voters = {v.replica_id: (v.endpoint.host, v.endpoint.port) for v in leader.engine.describe().voters}
            assert voters == cluster.addresses

    asyncio.run(run())


@pytest.mark.parametrize("names_voters", [True, False], ids=["voters", "bootstrap.servers"])
@pytest.mark.parametrize("move", ["elsewhere", "among_themselves"])
def test_voters_that_all_start_again_at_other_addresses_find_each_other_by_their_configuration(
    new_engines: Engines, wait_until: WaitUntil, move: str, names_voters: bool
) -> None:
    async def run() -> None:
        async with new_engines(3, FAST, others=3) as cluster:
            await commit(await cluster.settled_leader(), b"before")
            for node_id in (1, 2, 3):
                await cluster.stop(node_id)
            old = dict(cluster.addresses)
            new = {"elsewhere": (4, 5, 6), "among_themselves": (2, 3, 1)}[move]
            cluster.addresses = {i: old[there] for i, there in zip((1, 2, 3), new, strict=True)}
            moved = VoterSet(voter_of(cluster, i) for i in (1, 2, 3))
            named = {"voters": moved} if names_voters else {"voters": VoterSet(), "bootstrap": list(old.values())}
            for node_id in (1, 2, 3):
                await cluster.start(node_id, **named)
            for process in cluster.running.values():
                await wait_until(lambda p=process: addresses_in(p.listener.voters) == cluster.addresses)
            await commit(await cluster.leader(), b"after")
            for process in cluster.running.values():
                await wait_until(lambda p=process: p.listener.payloads == [b"before", b"after"])

    asyncio.run(run())


def test_sole_voter_that_starts_again_at_another_address_writes_it_down(
    new_engines: Engines, wait_until: WaitUntil
) -> None:
    async def run() -> None:
        async with new_engines(1, FAST, others=1) as cluster:
            await cluster.settled_leader()
            await cluster.stop(1)
            cluster.addresses[1] = cluster.addresses.pop(2)
            again = await cluster.start(1)
            await wait_until(lambda: again.listener.voters.address(1) == cluster.addresses[1])

    asyncio.run(run())


def test_leadership_is_handed_over_on_request(new_engines: Engines, wait_until: WaitUntil) -> None:
    async def run() -> None:
        async with new_engines(3, FAST) as cluster:
            leader = await cluster.settled_leader()
            await commit(leader, b"x")
            to = next(i for i, p in cluster.running.items() if p is not leader)
            assert await leader.engine.transfer_leadership(to, 5_000) == to
            await wait_until(lambda: cluster.running[to].engine.leader.is_self)
            await commit(cluster.running[to], b"y")
            await wait_until(lambda: leader.listener.payloads == [b"x", b"y"])

    asyncio.run(run())


def test_leader_that_stops_hands_over_at_once(new_engines: Engines, wait_until: WaitUntil) -> None:
    async def run() -> float:
        config = RaftConfig(election_timeout_ms=2_000, heartbeat_interval_ms=100)
        async with new_engines(3, config) as cluster:
            leader = await cluster.settled_leader()
            await commit(leader, b"x")
            started = asyncio.get_running_loop().time()
            await cluster.stop(leader.engine.leader.leader_id)
            await cluster.leader()
            return asyncio.get_running_loop().time() - started

    assert asyncio.run(run()) < 1.5


def test_leader_that_stops_alone_waits_no_longer_than_an_election(new_engines: Engines) -> None:
    async def run() -> float:
        async with new_engines(2, FAST) as cluster:
            leader = await cluster.settled_leader()
            other = next(i for i, p in cluster.running.items() if p is not leader)
            await cluster.stop(other)
            started = asyncio.get_running_loop().time()
            await cluster.stop(3 - other)
            return asyncio.get_running_loop().time() - started

    assert asyncio.run(run()) < 2


def test_voter_that_has_lost_its_disk_is_refused_until_it_is_removed(
    new_engines: Engines, wait_until: WaitUntil, caplog: pytest.LogCaptureFixture
) -> None:
    async def run() -> None:
        async with new_engines(3, FAST) as cluster:
            leader = await cluster.settled_leader()
            await commit(leader, b"x")
            lost = next(i for i, p in cluster.running.items() if p is not leader)
            await cluster.stop(lost)
            shutil.rmtree(cluster.root / str(lost))
            again = await cluster.start(lost)
            await wait_until(lambda: "it must be removed from the voters" in caplog.text)
            assert again.listener.payloads == []
            await leader.engine.remove_voter(lost, b"", 5_000)
            await wait_until(lambda: again.listener.payloads == [b"x"])
            await leader.engine.add_voter(voter_of(cluster, lost), 10_000)
            voters = {v.replica_id: v.directory_id for v in leader.engine.describe().voters}
            assert voters[lost] == again.engine.directory_id

    asyncio.run(run())


def test_controller_with_bootstrap_servers_alone_leads_with_its_log_and_founds_nothing_without(
    new_engines: Engines, wait_until: WaitUntil
) -> None:
    async def run() -> None:
        async with new_engines(1, FAST) as cluster:
            await commit(await cluster.settled_leader(), b"x")
            await cluster.stop(1)
            alone = {"voters": VoterSet(), "bootstrap": [cluster.addresses[1]]}
            again = await cluster.start(1, **alone)
            await wait_until(lambda: again.engine.leader.is_self and again.listener.payloads == [b"x"])
            await cluster.stop(1)
            shutil.rmtree(cluster.root / "1")
            empty = await cluster.start(1, **alone)
            await asyncio.sleep(4 * FAST.election_timeout_ms / 1000)
            assert empty.engine.leader.leader_id is None
            assert empty.listener.entries == []

    asyncio.run(run())
