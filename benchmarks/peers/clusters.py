"""The compared clusters, and the work that all of them do in turns."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from types import MappingProxyType
from typing import TypeVar

from benchmarks.options import Options
from benchmarks.peers.client import Topics, acknowledge_first_record
from benchmarks.peers.comparison import Found
from benchmarks.peers.peer import Peer
from benchmarks.rounds import in_turns

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Clusters:
    """The compared clusters, Tidelog first, and the amount of work."""

    peers: Sequence[Peer]
    options: Options

    @property
    def replicas(self) -> int:
        """The number of replicas of the topics: one on each broker."""
        return self.peers[0].size.brokers

    @property
    def text(self) -> str:
        """The clusters' size as the table shows it."""
        return f"{self.replicas} nodes, RF {self.replicas}" if self.replicas > 1 else "1 node, RF 1"

    def start(self) -> None:
        """Start all clusters, and wait until each has accepted a record."""
        for peer in self.peers:
            self.options.say(f"starting {peer.name}, {peer.size}")
            peer.start()
        for peer in self.peers:
            acknowledge_first_record(peer.bootstrap_servers, "first", peer.size.brokers)

    def close(self) -> None:
        """End all clusters."""
        for peer in self.peers:
            peer.close()

    def in_turns(self, work: Callable[[Peer], T], rounds: int, warm_up: int = 1) -> Found[T]:
        """Do the work on each cluster once per round, after rounds that do not count."""
        return Found(in_turns({peer.name: partial(work, peer) for peer in self.peers}, rounds, warm_up))


def create_topic(
    peer: Peer, topic: str, partitions: int, replicas: int, config: Mapping[str, str] = MappingProxyType({})
) -> None:
    """Create a topic, and wait until all replicas are in sync. ``config`` is added to its configuration."""
    topics = Topics(peer.bootstrap_servers)
    topics.create(topic, partitions, replicas, config)
    topics.wait_whole(topic)
