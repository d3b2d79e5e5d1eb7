"""Connections between controllers, and the first message on each."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import grpc.aio
import pytest

from tidelog.v1 import raft_service_pb2 as pb
from tidelog.v1.raft_service_pb2_grpc import RaftServiceServicer, add_RaftServiceServicer_to_server
from tidelog_foundation.errors import ErrorCode, TidelogError
from tidelog_foundation.requests.addresses import ControllerEndpoint
from tidelog_foundation.transport import server_options
from tidelog_quorum.raft.core.endpoints import Endpoints
from tidelog_quorum.raft.core.messages import (
    AppendRequest,
    Entry,
    EntryKind,
    FollowRequest,
    Message,
    Snapshot,
    SnapshotRequest,
    VoteResponse,
)
from tidelog_quorum.raft.core.voters import Voter, VoterSet
from tidelog_quorum.raft.network.links import PeerLink, resolve_address
from tidelog_quorum.raft.network.peers import ANY_RECEIVER, ConfiguredControllers, Introduction, Peers

ME = Introduction("c", 1, bytes(16), Endpoints.at("one.test", 1))
LOG_2 = bytes(range(16))
VOTERS = VoterSet([Voter.at(1, "one.test", 1), Voter.at(2, "two.test", 2, LOG_2), Voter.at(3, "three.test", 3)])
CHUNK = SnapshotRequest(1, 5, Snapshot(9, 5, VOTERS, 100, 7), 0, b"x" * 100)


class Listening(RaftServiceServicer):
    """A controller of another process: takes whoever comes and keeps the frames."""

    def __init__(self, node_id: int, directory_id: bytes = LOG_2, cluster_id: str = "c") -> None:
        self.me = Introduction(cluster_id, node_id, directory_id, Endpoints.at(f"{node_id}.test", node_id))
        self.hellos: list[pb.RaftHello] = []
        self.frames: list[pb.ExchangeRequest] = []
        self.server = grpc.aio.server(options=server_options())
        self.port = self.server.add_insecure_port("127.0.0.1:0")
        add_RaftServiceServicer_to_server(self, self.server)

    async def Exchange(
        self, request_iterator: AsyncIterator[pb.ExchangeRequest], _context: object
    ) -> AsyncIterator[pb.ExchangeResponse]:
        self.hellos.append((await anext(request_iterator)).hello)
        yield pb.ExchangeResponse(hello=self.me.hello_to(self.hellos[-1].sender_id))
        async for request in request_iterator:
            self.frames.append(request)

    def kinds(self) -> list[str]:
        return [str(m.WhichOneof("message")) for frame in self.frames for m in frame.messages]

    async def __aenter__(self) -> Listening:
        await self.server.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.server.stop(0)


class Names:
    """Resolves by a table that a test changes; names that are not in it do not exist."""

    def __init__(self, **ports: int) -> None:
        self.ports = ports
        self.asked: list[str] = []

    async def __call__(self, host: str, _port: int) -> list[str]:
        self.asked.append(host)
        port = self.ports.get(host.removesuffix(".test"))
        if port is None:
            raise OSError(-2, "Name or service not known")
        return [f"ipv4:127.0.0.1:{port}"]


def link_to(names: Names, host: str = "two.test") -> PeerLink:
    return PeerLink(ME.hello_to(2), (host, 2), lambda _: None, names)


def append(size: int = 0) -> AppendRequest:
    return AppendRequest(1, 5, 0, 0, 0, (Entry(1, 5, EntryKind.DATA, bytes(size)),) if size else (), 0)


def test_link_finds_a_peer_again_that_has_come_back_with_another_address(wait_until: Any) -> None:
    async def main() -> None:
        names = Names()
        async with Listening(2) as first, Listening(2) as second:
            names.ports["two"] = first.port
            link = link_to(names)
            task = asyncio.create_task(link.run())
            await wait_until(lambda: bool(first.hellos))
            names.ports["two"] = second.port
            await first.server.stop(0)
            await wait_until(lambda: bool(second.hellos))
            link.send(append())
            await wait_until(lambda: second.kinds() == ["append_request"])
            task.cancel()
            await asyncio.wait([task])

    asyncio.run(main())


def test_link_asks_for_the_name_again_while_it_does_not_exist_or_nobody_listens(wait_until: Any) -> None:
    async def main() -> None:
        names = Names()
        link = link_to(names)
        task = asyncio.create_task(link.run())
        await wait_until(lambda: len(names.asked) >= 3)
        async with Listening(2) as peer:
            names.ports["two"] = peer.port
            await wait_until(lambda: bool(peer.hellos))
            task.cancel()
            await asyncio.wait([task])

    asyncio.run(main())


def test_link_connects_again_after_a_call_that_grpc_has_cancelled(wait_until: Any) -> None:
    """The leader would otherwise never call a controller again whose first call was cancelled inside of gRPC."""

    class Cancelled(Names):
        async def __call__(self, host: str, port: int) -> list[str]:
            found = await super().__call__(host, port)
            if len(self.asked) == 1:
                raise asyncio.CancelledError
            return found

    async def main() -> None:
        async with Listening(2) as peer:
            task = asyncio.create_task(link_to(Cancelled(two=peer.port)).run())
            await wait_until(lambda: task.done() or bool(peer.hellos))
            assert not task.done()
            task.cancel()
            await asyncio.wait([task], timeout=10)
            assert task.cancelled()

    asyncio.run(main())


def test_heartbeat_and_vote_overtake_a_chunk_that_waits(wait_until: Any) -> None:
    async def main() -> None:
        async with Listening(2) as peer:
            link = link_to(Names(two=peer.port))
            for message in (CHUNK, append(), VoteResponse(1, 5, False, True)):
                link.send(message)
            task = asyncio.create_task(link.run())
            await wait_until(lambda: len(peer.kinds()) == 3)
            assert peer.kinds() == ["append_request", "vote_response", "snapshot_request"]
            assert len(peer.frames[-1].messages) == 1
            task.cancel()
            await asyncio.wait([task])

    asyncio.run(main())


def test_link_sends_bounded_frames_and_drops_the_oldest_when_too_much_waits(wait_until: Any) -> None:
    async def main() -> None:
        mib = 1024 * 1024
        async with Listening(2) as peer:
            link = link_to(Names(two=peer.port))
            for _ in range(200):
                link.send(append(mib))
            task = asyncio.create_task(link.run())
            await wait_until(lambda: len(peer.kinds()) == 80)
            assert max(frame.ByteSize() for frame in peer.frames) < 4.1 * mib
            task.cancel()
            await asyncio.wait([task])

    asyncio.run(main())


def test_operating_system_resolves_to_the_form_of_grpc() -> None:
    assert asyncio.run(resolve_address("127.0.0.1", 9093)) == ["ipv4:127.0.0.1:9093"]
    assert "ipv4:127.0.0.1:9093" in asyncio.run(resolve_address("localhost", 9093))


def peers_of(
    voters: VoterSet = VOTERS, *, leader_id: int | None = None, names: Names | None = None, **options: Any
) -> Peers:
    arguments: dict[str, Any] = {"configured": ConfiguredControllers(), "max_observers": 2, **options}
    peers = Peers(ME, leader_id=lambda: leader_id, resolve=names or Names(), **arguments)
    peers.set_voters(voters)
    return peers


def hello(sender_id: int, directory_id: bytes = b"", *, cluster_id: str = "c", to: int = 1) -> pb.RaftHello:
    return Introduction(cluster_id, sender_id, directory_id, Endpoints.at(f"{sender_id}.test", sender_id)).hello_to(to)


@pytest.mark.parametrize(
    ("caller", "code", "text"),
    [
        (hello(2, cluster_id="d"), ErrorCode.INCONSISTENT_CLUSTER_ID, 'of cluster "c", controller 2 of "d"'),
        (hello(2, to=3), ErrorCode.INCONSISTENT_VOTER_SET, "calls controller 3, but this is controller 1"),
        (hello(1), ErrorCode.INCONSISTENT_VOTER_SET, "controller 1 calls controller 1"),
        (hello(2, bytes(16)), ErrorCode.INCONSISTENT_VOTER_SET, "it must be removed from the voters"),
        (hello(2, b"short"), ErrorCode.INVALID_REQUEST, "directory id of the wrong size"),
        (hello(-4), ErrorCode.INCONSISTENT_VOTER_SET, "controller -4"),
    ],
)
def test_caller_that_must_not_take_part_is_refused(caller: pb.RaftHello, code: ErrorCode, text: str) -> None:
    async def main() -> None:
        peers = peers_of(leader_id=1)
        with pytest.raises(TidelogError, match=text) as refused:
            peers.check_hello(caller)
        assert refused.value.code is code
        await peers.stop()

    asyncio.run(main())


@pytest.mark.parametrize("leader_id", [None, 2])
def test_voter_with_another_log_is_heard_by_one_that_knows_no_leader_but_it(leader_id: int | None) -> None:
    async def main() -> None:
        peers = peers_of(leader_id=leader_id)
        peers.check_hello(hello(2, bytes(16)))
        await peers.stop()

    asyncio.run(main())


def test_voters_and_a_bounded_number_of_others_are_taken() -> None:
    async def main() -> None:
        peers = peers_of()
        for caller in (hello(2, LOG_2), hello(3), hello(4, to=ANY_RECEIVER), hello(5)):
            peers.check_hello(caller)
            peers.connected(caller)
        with pytest.raises(TidelogError, match="one more than the 2 observers"):
            peers.check_hello(hello(6))
        peers.check_hello(hello(5))
        peers.disconnected(hello(4))
        peers.check_hello(hello(6))
        await peers.stop()

    asyncio.run(main())


def test_links_follow_the_voters_and_those_who_are_connected(wait_until: Any) -> None:
    async def main() -> None:
        names = Names()
        peers = peers_of(names=names)
        assert linked(peers) == {2: ("two.test", 2), 3: ("three.test", 3)}
        peers.connected(hello(3))
        peers.connected(hello(4))
        peers.set_voters(VOTERS.without(3).with_voter(Voter.at(2, "moved.test", 2, LOG_2)))
        assert linked(peers) == {2: ("moved.test", 2), 3: ("3.test", 3), 4: ("4.test", 4)}
        peers.connected(hello(4))
        peers.disconnected(hello(4))
        peers.disconnected(hello(3))
        assert linked(peers) == {2: ("moved.test", 2), 4: ("4.test", 4)}
        peers.disconnected(hello(4))
        assert linked(peers) == {2: ("moved.test", 2)}
        assert peers.endpoints_of(1) == Endpoints.at("one.test", 1)
        assert peers.endpoints_of(2) == Endpoints.at("moved.test", 2)
        assert peers.endpoints_of(9) == Endpoints()
        await peers.stop()
        asked = len(names.asked)
        await asyncio.sleep(0.1)
        assert len(names.asked) == asked

    asyncio.run(main())


def test_voter_that_is_connected_is_answered_where_it_says_that_it_listens() -> None:
    async def main() -> None:
        peers = peers_of()
        peers.connected(hello(2, bytes(16)))
        peers.connected(hello(3, bytes(16)))
        assert linked(peers) == {2: ("two.test", 2), 3: ("3.test", 3)}, "2 has not the voter's log, 3's is not known"
        peers.connected(hello(2, LOG_2))
        assert linked(peers) == {2: ("2.test", 2), 3: ("3.test", 3)}
        assert peers.endpoints_of(2) == Endpoints.at("two.test", 2), "as the log says"
        peers.set_voters(VOTERS.with_voter(Voter.at(2, "late.test", 2, LOG_2)))
        assert linked(peers)[2] == ("2.test", 2)
        for directory_id in (bytes(16), LOG_2):
            peers.disconnected(hello(2, directory_id))
        assert linked(peers)[2] == ("late.test", 2)
        await peers.stop()

    asyncio.run(main())


def test_bootstrap_address_is_linked_until_it_is_a_known_controllers(wait_until: Any) -> None:
    async def main() -> None:
        async with Listening(2) as two, Listening(7) as seven:
            names = Names(**{"2": two.port}, alias=two.port, seven=seven.port, me=seven.port)
            bootstrap = [("alias.test", 2), ("seven.test", 7), ME.address]
            peers = peers_of(VoterSet(), names=names, configured=ConfiguredControllers(bootstrap=bootstrap))
            await wait_until(lambda: bool(two.hellos) and bool(seven.hellos))
            assert {h.receiver_id for h in two.hellos + seven.hellos} == {ANY_RECEIVER}
            ask: Message = FollowRequest(1, 0, 0, 0)
            peers.send_to_configured(ask)
            await wait_until(lambda: two.kinds() == seven.kinds() == ["follow_request"])
            peers.set_voters(VoterSet([Voter.at(2, "2.test", 2, LOG_2)]))
            await wait_until(lambda: two.hellos[-1].receiver_id == 2)
            peers.send_to_configured(ask)
            await wait_until(lambda: len(seven.kinds()) == 2)
            assert two.kinds() == ["follow_request"]
            peers.set_voters(VoterSet([Voter.at(2, "gone.test", 2, LOG_2)]))
            await wait_until(lambda: two.hellos[-1].receiver_id == ANY_RECEIVER)
            peers.send_to_configured(ask)
            await wait_until(lambda: len(two.kinds()) == 2)
            await peers.stop()

    asyncio.run(main())


def test_voter_is_called_where_the_file_and_where_the_log_says_until_both_say_the_same(wait_until: Any) -> None:
    async def main() -> None:
        async with Listening(2) as two:
            names = Names(moved=two.port)
            file = VoterSet([Voter.at(1, "one.test", 1), Voter.at(2, "moved.test", 2), Voter.at(3, "three.test", 3)])
            peers = peers_of(names=names, configured=ConfiguredControllers(file))
            await wait_until(lambda: [h.receiver_id for h in two.hellos] == [2])
            assert {"two.test", "moved.test"} <= set(names.asked)
            assert named(peers) == {(2, ("moved.test", 2))}, "3 is where both say"
            peers.send_to_configured(FollowRequest(1, 0, 0, 0))
            await wait_until(lambda: two.kinds() == ["follow_request"])
            peers.connected(hello(2, LOG_2))
            assert named(peers) == {(2, ("moved.test", 2))}, "a stream that ends here would end the one that it caused"
            peers.set_voters(VOTERS.with_voter(Voter.at(2, "moved.test", 2, LOG_2)))
            assert named(peers) == set()
            await peers.stop()

    asyncio.run(main())


def test_answer_of_another_controller_or_cluster_ends_the_stream(
    wait_until: Any, caplog: pytest.LogCaptureFixture
) -> None:
    async def main() -> None:
        async with Listening(9) as nine, Listening(3, cluster_id="d") as three:
            peers = peers_of(names=Names(two=nine.port, three=three.port))
            await wait_until(lambda: "controller 9 answers for 2" in caplog.text)
            await wait_until(lambda: 'controller 3 of "d"' in caplog.text)
            await peers.stop()

    asyncio.run(main())


def linked(peers: Peers) -> dict[int, tuple[str, int]]:
    return {node_id: link.address for node_id, link in peers._links.items()}


def named(peers: Peers) -> set[tuple[int, tuple[str, int]]]:
    return set(peers._configured_links)


def test_controller_is_called_at_the_listener_with_the_name_of_the_first_one_here(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def main() -> None:
        both = Endpoints([ControllerEndpoint("two.test", 1, "OPEN"), ControllerEndpoint("two.test", 2, "TLS")])
        voters = VoterSet([Voter(2, both, LOG_2), Voter.at(3, "three.test", 1, listener="OPEN")])
        me = Introduction("c", 1, bytes(16), Endpoints.at("one.test", 2, "TLS"), "TLS")
        arguments: dict[str, Any] = {"max_observers": 2, "leader_id": lambda: None, "resolve": Names()}
        file = VoterSet([Voter.at(3, "three.test", 2, listener="TLS")])
        peers = Peers(me, ConfiguredControllers(file), **arguments)
        peers.set_voters(voters)
        assert (linked(peers), named(peers)) == ({2: ("two.test", 2)}, {(3, ("three.test", 2))})
        lacks = "cannot call controller 3 at OPEN://three.test:1: it has no listener TLS"
        assert caplog.text.count(lacks) == 1
        announced = Introduction("c", 3, b"", Endpoints([*both, *Endpoints.at("three.test", 2, "TLS")]), "OPEN")
        peers.connected(announced.hello_to(1))
        assert linked(peers) == {2: ("two.test", 2), 3: ("three.test", 2)}, "as it announces"
        assert caplog.text.count(lacks) == 1
        await peers.stop()

    asyncio.run(main())
