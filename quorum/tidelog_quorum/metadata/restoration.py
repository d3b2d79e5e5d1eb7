"""The image with which a new quorum begins, made from that of a lost one (pure).

The metadata may be old: after a backup, or behind what a lost controller had acknowledged, leaders and ISRs have
changed, and producers have written records that only some replicas have. The rules:

1. **Nothing lost returns as something new.** The offset, the epoch, the leader and partition epochs and the producer
   ids begin above all that the lost quorum can have given out (``generation``).
2. **No broker is taken for alive.** Every registration is fenced, without an incarnation. It keeps its broker epoch or,
   after a clean shutdown that an inventory reports, has that of the shutdown, so that the broker's logs count as
   complete when it returns.
3. **The longest log leads.** With inventories, the ISR of a partition is the replicas with the greatest log end
   (``LogEnd``): every committed record was on all in-sync replicas, one of which is measured. No partition has a leader
   before a member of its ISR returns, and none is elected from outside the ISR unless the topic allows it.
4. **Replicas are where their logs are.** If no replica with the greatest end is among the recorded ones, a reassignment
   has moved the partition since: the brokers that have it become its replicas.
5. Without inventories, the recorded ISRs stay. This loses committed records if an ISR has shrunk since: the caller must
   have been told.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from types import MappingProxyType

from tidelog_foundation.dataclass import dataclass
from tidelog_foundation.errors import ErrorCode, TidelogError, error_for
from tidelog_foundation.ids import NO_BROKER, BrokerId, LeaderEpoch, PartitionEpoch, TopicId
from tidelog_quorum.metadata.features import check_supported
from tidelog_quorum.metadata.generation import (
    LEADER_EPOCHS_PER_GENERATION,
    MAX_EPOCH,
    OFFSETS_PER_GENERATION,
    PRODUCER_IDS_PER_GENERATION,
    first_epoch_after,
)
from tidelog_quorum.metadata.image import MetadataImage, TopicImage
from tidelog_quorum.metadata.registrations import BrokerRegistration, PartitionRegistration
from tidelog_quorum.metadata.replica_inventory import LogEnd, ReplicaInventory

_NO_INCARNATION = bytes(16)
_SHOWN = 10

Ends = Mapping[tuple[TopicId, int], Mapping[BrokerId, LogEnd]]


@dataclass(frozen=True, slots=True)
class Restoration:
    """The image of a new quorum, and the differences between the metadata and the disks, as ``topic-partition``.

    ``moved`` have other replicas than recorded; of ``empty`` no disk has a replica, as after the deletion of the topic;
    ``strays`` are on disks but unknown: nodes keep them aside.
    """

    image: MetadataImage
    moved: tuple[str, ...] = ()
    empty: tuple[str, ...] = ()
    strays: tuple[str, ...] = ()


def restored(
    image: MetadataImage,
    inventories: Sequence[ReplicaInventory] | None,
    absent: Collection[BrokerId] = (),
) -> Restoration:
    """Return the image with which a new quorum begins.

    ``inventories`` are those of all nodes except ``absent`` ones, which are lost for good; None keeps the recorded
    ISRs.

    Raises:
        TidelogError: UNSUPPORTED_VERSION, a feature has a level that this version does not support; INVALID_REQUEST, a
            node has no inventory or several, or no epoch is left.
    """
    check_supported(image.feature_levels)
    ends = None if inventories is None else _ends(image, inventories, absent)
    moved: list[str] = []
    empty: list[str] = []
    topics: dict[str, TopicImage] = {}
    for name, topic in image.topics.items():
        partitions: dict[int, PartitionRegistration] = {}
        for index, partition in topic.partitions.items():
            found = {} if ends is None else ends.get((topic.topic_id, index), {})
            partitions[index] = after = _restored_partition(partition, found)
            if ends is not None and not found:
                empty.append(f"{name}-{index}")
            elif after.replicas != partition.replicas:
                moved.append(f"{name}-{index}")
        topics[name] = replace(topic, partitions=MappingProxyType(partitions))
    begun = replace(
        image,
        offset=image.offset + OFFSETS_PER_GENERATION,
        epoch=first_epoch_after(image.epoch),
        brokers=MappingProxyType(_restored_brokers(image, inventories or ())),
        topics=MappingProxyType(topics),
        next_producer_id=image.next_producer_id + PRODUCER_IDS_PER_GENERATION,
    )
    return Restoration(begun, tuple(sorted(moved)), tuple(sorted(empty)), _strays(image, inventories or ()))


def listed(names: Sequence[str]) -> str:
    """Return the first few of some names, and the number of the others."""
    rest = len(names) - _SHOWN
    return ", ".join(names[:_SHOWN]) + (f" and {rest} more" if rest > 0 else "")


def _ends(image: MetadataImage, inventories: Sequence[ReplicaInventory], absent: Collection[BrokerId]) -> Ends:
    named = [inventory.node_id for inventory in inventories]
    if twice := sorted({node for node in named if named.count(node) > 1}):
        raise _invalid(f"node {twice[0]} has {named.count(twice[0])} inventories")
    if both := sorted(set(named) & set(absent)):
        raise _invalid(f"node {both[0]} has an inventory, but counts as lost")
    hosts = {replica for _, _, partition in image.partitions() for replica in partition.replicas}
    if missing := sorted(hosts - set(named) - set(absent)):
        text = f"nodes without an inventory: {', '.join(map(str, missing))}; the longest logs may be theirs"
        raise _invalid(text)
    ends: dict[tuple[TopicId, int], dict[BrokerId, LogEnd]] = {}
    for inventory in inventories:
        for replica in inventory.replicas:
            of_partition = ends.setdefault((replica.topic_id, replica.partition), {})
            former = of_partition.get(inventory.node_id)
            of_partition[inventory.node_id] = replica.end if former is None else max(former, replica.end)
    return ends


def _restored_partition(partition: PartitionRegistration, ends: Mapping[BrokerId, LogEnd]) -> PartitionRegistration:
    leader_epoch = max([partition.leader_epoch, *(end.leader_epoch for end in ends.values())])
    leader_epoch += LEADER_EPOCHS_PER_GENERATION
    if leader_epoch + LEADER_EPOCHS_PER_GENERATION > MAX_EPOCH:
        raise _invalid(f"leader epoch {leader_epoch} leaves no room: leader epochs end at {MAX_EPOCH}")
    begun = replace(
        partition,
        leader=NO_BROKER,
        leader_epoch=LeaderEpoch(leader_epoch),
        partition_epoch=PartitionEpoch(max(partition.partition_epoch, leader_epoch) + LEADER_EPOCHS_PER_GENERATION),
    )
    if not ends:
        return begun
    best = max(ends.values())
    longest = {broker for broker, end in ends.items() if end == best}
    if longest.isdisjoint(partition.replicas):
        order = sorted(ends, key=lambda b: (b not in longest, b))
        replicas = tuple(order)
        # The directories are unknown; the brokers report them.
        begun = replace(begun, replicas=replicas, directories=(), adding_replicas=(), removing_replicas=())
    isr = tuple(b for b in begun.replicas if b in longest)
    return replace(begun, isr=isr, eligible_leader_replicas=(), last_known_elr=())


def _restored_brokers(
    image: MetadataImage, inventories: Sequence[ReplicaInventory]
) -> dict[BrokerId, BrokerRegistration]:
    epochs = {i.node_id: i.clean_shutdown_epoch for i in inventories}
    brokers: dict[BrokerId, BrokerRegistration] = {}
    for broker_id, broker in image.brokers.items():
        epoch = epochs.get(broker_id)
        brokers[broker_id] = replace(
            broker,
            broker_epoch=broker.broker_epoch if epoch is None or epoch < 0 else epoch,
            incarnation_id=_NO_INCARNATION,
            fenced=True,
            in_controlled_shutdown=False,
        )
    return brokers


def _strays(image: MetadataImage, inventories: Sequence[ReplicaInventory]) -> tuple[str, ...]:
    known = {(topic.topic_id, index) for topic, index, _ in image.partitions()}
    found = {
        f"{replica.topic}-{replica.partition}"
        for inventory in inventories
        for replica in inventory.replicas
        if (replica.topic_id, replica.partition) not in known
    }
    return tuple(sorted(found))


def _invalid(text: str) -> TidelogError:
    return error_for(ErrorCode.INVALID_REQUEST, text)
