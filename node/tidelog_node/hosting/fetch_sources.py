"""Sources of a node's replica fetchers: one fetcher per leader, while it has partitions to copy."""

from __future__ import annotations

from collections import Counter

from tidelog_foundation.ids import BrokerId
from tidelog_node.hosting.commands import AddToFetcher, BeginFetcher, Command, EndFetcher, RemoveFromFetcher
from tidelog_node.hosting.states import PartitionKey, Source


class FetchSources:
    """The leader that each replica is copied from. A replica has at most one fetcher, and no fetcher is idle."""

    def __init__(self) -> None:
        self._sources: dict[PartitionKey, Source] = {}
        self._copied: Counter[BrokerId] = Counter()

    def get(self, key: PartitionKey) -> Source | None:
        """Return the leader that a replica is copied from."""
        return self._sources.get(key)

    def start(self, key: PartitionKey, source: Source) -> list[Command]:
        """Copy a replica from this leader alone."""
        leader_id, before = source.leader_id, self._sources.get(key)
        commands = self.stop(key) if before is not None and before.leader_id != leader_id else []
        if key not in self._sources:
            self._copied[leader_id] += 1
            if self._copied[leader_id] == 1:
                commands.append(BeginFetcher(leader_id))
        self._sources[key] = source
        commands.append(AddToFetcher(key, leader_id, source.leader_epoch))
        return commands

    def stop(self, key: PartitionKey) -> list[Command]:
        """Stop copying a replica."""
        source = self._sources.pop(key, None)
        if source is None:
            return []
        leader_id = source.leader_id
        commands: list[Command] = [RemoveFromFetcher(key, leader_id)]
        self._copied[leader_id] -= 1
        if not self._copied[leader_id]:
            del self._copied[leader_id]
            commands.append(EndFetcher(leader_id))
        return commands

    def check_invariants(self) -> None:
        """Assert what must hold after every step."""
        assert self._copied == Counter(source.leader_id for source in self._sources.values())
