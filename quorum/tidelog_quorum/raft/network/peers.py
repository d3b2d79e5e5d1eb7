"""The other controllers: outgoing links, admission of incoming streams, and the hello that both sides exchange.

There is a link to every voter, and one back to every replica without a vote while it is connected. Links to voters
follow the voter set. A controller calls others at the listener with the name of its own first one. A voter that is
connected, with the metadata log that has the vote, is answered at the address that it announces for that listener: it
may have moved, and a replica that has yet to learn so from the log must be able to answer the sender of the log. While
a voter's directory id is unknown, as from a controller's own file, any log with its id is accepted.

The voter set may name addresses that nobody uses any more: any number of controllers may have moved since it was
written. So a controller also connects to each address in its own file (see ``ConfiguredControllers``), until the voter
set names the same one. Both addresses are tried at the same time, and the hello decides: neither the file nor the log
takes precedence. Two controllers find each other if the file or the log of one has the other's current address, because
the called one calls back. The leader then writes the new addresses to the log.

Each controller sends a hello with its cluster, id, directory id and addresses. A controller of another cluster, one
that is not the intended receiver, and one that started a new metadata log under a voter's id get an error that says so.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence
from dataclasses import field, replace

from tidelog.v1 import raft_service_pb2 as pb
from tidelog_foundation.dataclass import dataclass
from tidelog_foundation.errors import ErrorCode, TidelogError, error_for
from tidelog_foundation.transport.channels import OPEN, ChannelSecurity
from tidelog_quorum.raft.core.endpoints import ANY_LISTENER, Endpoints
from tidelog_quorum.raft.core.messages import Message
from tidelog_quorum.raft.core.voters import Voter, VoterSet
from tidelog_quorum.raft.network.links import PeerLink, Resolve
from tidelog_quorum.raft.storage.log_format import DIRECTORY_ID_SIZE
from tidelog_quorum.raft.voters_record import endpoints_from_message, endpoints_to_message, has_valid_endpoints

logger = logging.getLogger(__name__)

ANY_RECEIVER = -1
"""The receiver in a hello to a bootstrap address, whose id is unknown."""


@dataclass(frozen=True, slots=True)
class Introduction:
    """A controller's cluster, ids and addresses, which its hello announces; ``listener`` names its first listener."""

    cluster_id: str
    node_id: int
    directory_id: bytes
    endpoints: Endpoints
    listener: str = ANY_LISTENER

    @property
    def address(self) -> tuple[str, int] | None:
        """The address of the first listener."""
        return self.endpoints.address(self.listener)

    def hello_to(self, receiver_id: int) -> pb.RaftHello:
        """Return the first message of a stream, or the answer to it."""
        return pb.RaftHello(
            cluster_id=self.cluster_id,
            sender_id=self.node_id,
            receiver_id=receiver_id,
            sender_directory_id=self.directory_id,
            sender_endpoints=endpoints_to_message(self.endpoints),
        )


def endpoints_in(hello: pb.RaftHello) -> Endpoints | None:
    """Return the addresses that the sender announces; None if there is none, or one is invalid."""
    if not has_valid_endpoints(hello.sender_endpoints):
        return None
    return endpoints_from_message(hello.sender_endpoints)


@dataclass(frozen=True, slots=True)
class ConfiguredControllers:
    """The controllers in a controller's own file: ``voters`` with their ids, ``bootstrap`` without."""

    voters: VoterSet = field(default_factory=VoterSet)
    bootstrap: Sequence[tuple[str, int]] = ()

    def others(self, me: Introduction) -> list[tuple[int, tuple[str, int]]]:
        """Return the id, or :data:`ANY_RECEIVER`, and address of each controller except the caller."""
        named = [(v.voter_id, v.endpoints.address(me.listener)) for v in self.voters if v.voter_id != me.node_id]
        found = [(voter_id, address) for voter_id, address in named if address is not None]
        found += [(ANY_RECEIVER, address) for address in self.bootstrap if address != me.address]
        return list(dict.fromkeys(found))


@dataclass(frozen=True, slots=True)
class _Caller:
    """A controller that has ``streams`` open to this one; the other fields are from its last hello."""

    endpoints: Endpoints
    directory_id: bytes
    streams: int


class Peers:
    """The links of one controller, from its start to its stop; all on the event loop."""

    def __init__(
        self,
        me: Introduction,
        configured: ConfiguredControllers,
        max_observers: int,
        leader_id: Callable[[], int | None],
        resolve: Resolve,
        security: ChannelSecurity = OPEN,
    ) -> None:
        self.voters = VoterSet()
        self._me = me
        self._leader_id = leader_id
        self._configured = configured.others(me)
        self._max_observers = max_observers
        self._resolve = resolve
        self._security = security
        self._links: dict[int, PeerLink] = {}
        self._callers: dict[int, _Caller] = {}
        self._configured_links: dict[tuple[int, tuple[str, int]], PeerLink] = {}
        self._bootstrap_answers: dict[tuple[str, int], tuple[int, tuple[str, int] | None]] = {}
        self._unreachable: dict[int, Endpoints] = {}
        self._tasks: dict[PeerLink, asyncio.Task[None]] = {}
        self._ending: set[asyncio.Task[None]] = set()

    def set_voters(self, voters: VoterSet) -> None:
        """Connect to these voters; links to others stay only while those are connected to this controller."""
        self.voters = voters
        self._update_links()

    def send(self, to: int, message: Message) -> None:
        """Send a message; drop it if there is no link to the receiver."""
        link = self._links.get(to)
        if link is not None:
            link.send(message)

    def send_to_configured(self, message: Message) -> None:
        """Send a message to the controllers in this controller's file that the voter set does not name."""
        for link in self._configured_links.values():
            link.send(message)

    def endpoints_of(self, node_id: int) -> Endpoints:
        """Return a controller's addresses; none if they are unknown."""
        voter = self.voters.get(node_id)
        if voter is not None:
            return voter.endpoints
        if node_id == self._me.node_id:
            return self._me.endpoints
        return self._callers[node_id].endpoints if node_id in self._callers else Endpoints()

    def check_hello(self, hello: pb.RaftHello) -> None:
        """Refuse a caller that must not take part here.

        Raises:
            TidelogError: INCONSISTENT_CLUSTER_ID; INCONSISTENT_VOTER_SET, the call is for another controller, or the
                caller has this controller's id, or another metadata log than the voter of its id; INVALID_REQUEST, its
                hello is incomplete, or there are too many observers.
        """
        me, sender_id = self._me, hello.sender_id
        self._check_cluster(hello)
        if hello.receiver_id not in (me.node_id, ANY_RECEIVER) or sender_id == me.node_id or sender_id < 0:
            raise error_for(
                ErrorCode.INCONSISTENT_VOTER_SET,
                f"controller {sender_id} calls controller {hello.receiver_id}, but this is controller {me.node_id} "
                f"of the voters {list(self.voters.ids)}",
            )
        if len(hello.sender_directory_id) not in (0, DIRECTORY_ID_SIZE):
            raise error_for(ErrorCode.INVALID_REQUEST, f"controller {sender_id} has a directory id of the wrong size")
        self._check_directory(sender_id, hello.sender_directory_id)
        if sender_id in self.voters:
            return
        if endpoints_in(hello) is None:
            raise error_for(
                ErrorCode.INVALID_REQUEST, f"controller {sender_id} is not a voter and has no valid address"
            )
        others = [i for i in self._callers if i != sender_id and i not in self.voters]
        if len(others) >= self._max_observers:
            raise error_for(
                ErrorCode.INVALID_REQUEST,
                f"controller {sender_id} is one more than the {self._max_observers} observers that are taken",
            )

    def connected(self, hello: pb.RaftHello) -> None:
        """Record that a controller has opened a stream to this one, and link back to it."""
        endpoints = endpoints_in(hello)
        if endpoints is not None:
            known = self._callers.get(hello.sender_id)
            streams = 1 if known is None else known.streams + 1
            self._callers[hello.sender_id] = _Caller(endpoints, hello.sender_directory_id, streams)
            self._update_links()

    def disconnected(self, hello: pb.RaftHello) -> None:
        """Record that a stream passed to :meth:`connected` has ended."""
        known = self._callers.get(hello.sender_id)
        if known is None or endpoints_in(hello) is None:
            return
        if known.streams > 1:
            self._callers[hello.sender_id] = replace(known, streams=known.streams - 1)
        else:
            del self._callers[hello.sender_id]
        self._update_links()

    async def stop(self) -> None:
        """Close all links."""
        for link in list(self._tasks):
            self._end(link)
        await asyncio.gather(*self._ending, return_exceptions=True)

    def _update_links(self) -> None:
        """Open missing links and close unneeded ones."""
        wanted = self._wanted_addresses()
        for node_id in [i for i, link in self._links.items() if wanted.get(i) != link.address]:
            self._end(self._links.pop(node_id))
        for node_id, address in wanted.items():
            if node_id not in self._links:
                self._links[node_id] = self._begin(node_id, address)
        self._update_configured_links()

    def _wanted_addresses(self) -> dict[int, tuple[str, int]]:
        """Return the addresses to link to, by id. Log once which controllers lack this one's first listener."""
        endpoints = {i: caller.endpoints for i, caller in self._callers.items()}
        endpoints |= {voter.voter_id: self._endpoints_of_voter(voter) for voter in self.voters}
        endpoints.pop(self._me.node_id, None)
        addresses = {i: each.address(self._me.listener) for i, each in endpoints.items()}
        unreachable = {i: endpoints[i] for i, address in addresses.items() if address is None}
        for i, each in unreachable.items():
            if self._unreachable.get(i) != each:
                text = "cannot call controller %d at %s: it has no listener %s, the first of controller.listener.names"
                logger.warning(text, i, each, self._me.listener)
        self._unreachable = unreachable
        return {i: address for i, address in addresses.items() if address is not None}

    def _endpoints_of_voter(self, voter: Voter) -> Endpoints:
        caller = self._callers.get(voter.voter_id)
        if caller is not None and self.voters.is_voter(voter.voter_id, caller.directory_id):
            return caller.endpoints
        return voter.endpoints

    def _update_configured_links(self) -> None:
        for node_id, address in self._configured:
            link = self._configured_links.get((node_id, address))
            if self._is_needed(node_id, address):
                if link is None:
                    self._configured_links[node_id, address] = self._begin(node_id, address)
            elif link is not None:
                self._end(self._configured_links.pop((node_id, address)))

    def _is_needed(self, node_id: int, address: tuple[str, int]) -> bool:
        """Return whether the address in the file leads to a controller that the voter set does not reach."""
        if node_id != ANY_RECEIVER:
            return self.voters.address(node_id, self._me.listener) != address
        if address not in self._bootstrap_answers:
            return True
        known_id, says = self._bootstrap_answers[address]
        is_linked = known_id in self.voters and says in (None, self.voters.address(known_id, self._me.listener))
        return known_id != self._me.node_id and not is_linked

    def _begin(self, node_id: int, address: tuple[str, int]) -> PeerLink:
        def on_hello(hello: pb.RaftHello) -> None:
            self._on_answer(hello, node_id, address)

        link = PeerLink(self._me.hello_to(node_id), address, on_hello, self._resolve, self._security)
        self._tasks[link] = asyncio.get_running_loop().create_task(link.run(), name=f"raft-peer-{node_id}")
        return link

    def _end(self, link: PeerLink) -> None:
        task = self._tasks.pop(link)
        self._ending.add(task)
        task.add_done_callback(self._ending.discard)
        task.cancel()

    def _on_answer(self, hello: pb.RaftHello, expected_id: int, address: tuple[str, int]) -> None:
        self._check_cluster(hello)
        if expected_id == ANY_RECEIVER:
            # Later, because a link makes this call, and may be closed by it.
            asyncio.get_running_loop().call_soon(self._note_bootstrap_answer, address, hello)
        elif hello.sender_id != expected_id:
            raise error_for(ErrorCode.INCONSISTENT_VOTER_SET, f"controller {hello.sender_id} answers for {expected_id}")
        else:
            self._check_directory(hello.sender_id, hello.sender_directory_id)

    def _note_bootstrap_answer(self, address: tuple[str, int], hello: pb.RaftHello) -> None:
        endpoints = endpoints_in(hello)
        answer = hello.sender_id, None if endpoints is None else endpoints.address(self._me.listener)
        if self._bootstrap_answers.get(address) != answer and (ANY_RECEIVER, address) in self._configured_links:
            self._bootstrap_answers[address] = answer
            self._update_links()

    def _check_cluster(self, hello: pb.RaftHello) -> None:
        if hello.cluster_id != self._me.cluster_id:
            raise error_for(
                ErrorCode.INCONSISTENT_CLUSTER_ID,
                f'controller {self._me.node_id} is of cluster "{self._me.cluster_id}", '
                f'controller {hello.sender_id} of "{hello.cluster_id}"',
            )

    def _check_directory(self, node_id: int, directory_id: bytes) -> None:
        """Refuse a log that is not the voter's.

        Accept it while no leader is known, and accept the leader itself: this controller may have missed that the voter
        was removed and added again, and learns of it from that leader. The core judges the leader's messages.
        """
        voter = self.voters.get(node_id)
        if voter is None or self._leader_id() in (None, node_id):
            return
        if not self.voters.is_voter(node_id, directory_id):
            raise _another_directory(voter, directory_id)


def _another_directory(voter: Voter, directory_id: bytes) -> TidelogError:
    return error_for(
        ErrorCode.INCONSISTENT_VOTER_SET,
        f"controller {voter.voter_id} has a metadata log with the directory id {directory_id.hex()}, the voter's has "
        f"{voter.directory_id.hex()}: it must be removed from the voters before it can follow with a new log",
    )
