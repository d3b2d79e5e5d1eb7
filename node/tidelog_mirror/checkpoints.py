"""Checkpoints and the offsets that they give to groups of the target, by the rules of Kafka's MirrorCheckpointTask."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from tidelog_foundation.dataclass import dataclass
from tidelog_mirror.internal_records import Checkpoint
from tidelog_mirror.offset_syncs import OffsetSyncStore

PartitionKey = tuple[str, int]


@dataclass(frozen=True, slots=True)
class Committed:
    """A group's committed offset."""

    offset: int
    metadata: str = ""


class Checkpoints:
    """The latest checkpoint of each group and remote partition, from the topic and as emitted since."""

    def __init__(self) -> None:
        self._latest: dict[str, dict[PartitionKey, Checkpoint]] = {}

    @property
    def groups(self) -> list[str]:
        """The groups that have checkpoints."""
        return list(self._latest)

    def add(self, checkpoint: Checkpoint) -> None:
        """Store a checkpoint that is in the topic."""
        self._latest.setdefault(checkpoint.group_id, {})[checkpoint.topic, checkpoint.partition] = checkpoint

    def due(
        self,
        group_id: str,
        committed: Mapping[PartitionKey, Committed],
        syncs: OffsetSyncStore,
        remote_topic: Callable[[str], str],
    ) -> list[Checkpoint]:
        """Return the checkpoints to emit for the offsets that a group has committed on the source.

        Offsets that cannot be translated are left out. A translation does not go back, unless the group does.
        """
        found = []
        for (topic, partition), value in committed.items():
            translated = syncs.translate(topic, partition, value.offset)
            if translated is None or translated < 0:
                continue
            checkpoint = Checkpoint(group_id, remote_topic(topic), partition, value.offset, translated, value.metadata)
            if self._is_news(checkpoint):
                found.append(checkpoint)
        return found

    def offsets_to_commit(self, group_id: str, own: Mapping[PartitionKey, int]) -> dict[PartitionKey, Committed]:
        """Return the offsets to commit for a group without members on the target, whose own offsets never go back."""
        return {
            key: Committed(checkpoint.downstream_offset, checkpoint.metadata)
            for key, checkpoint in self._latest.get(group_id, {}).items()
            if key not in own or own[key] < checkpoint.downstream_offset
        }

    def _is_news(self, checkpoint: Checkpoint) -> bool:
        last = self._latest.get(checkpoint.group_id, {}).get((checkpoint.topic, checkpoint.partition))
        if last is None or checkpoint.upstream_offset < last.upstream_offset:
            return True
        return checkpoint.downstream_offset > last.downstream_offset
