"""The metrics of a node's coordinators: their shards, and the groups and offsets in memory."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import Any, Final

from tidelog_foundation.metrics import Family, Kind, Metric
from tidelog_node.coordination.coordinator import ShardCoordinator
from tidelog_node.coordination.shard_driver import LOAD_TIME
from tidelog_node.groups.loaded_groups import LoadedGroup
from tidelog_node.groups.shard import GroupShard
from tidelog_node.partitions import PartitionRegistry
from tidelog_node.transactions.shard import TransactionShard

_GROUPS: Final = "kafka.server:type=group-coordinator-metrics"
_MANAGER: Final = "kafka.coordinator.group:type=GroupMetadataManager"
_GROUPS_PER_STEP: Final = 64

SHARDS: Final = Metric(
    "tidelog_coordinator_shards",
    Kind.GAUGE,
    "The partitions of the internal topics that this node coordinates. Those in the state loading serve nobody.",
    labels=("coordinator", "state"),
    kafka=(f"{_GROUPS},state=*: num-partitions",),
)
GROUPS: Final = Metric(
    "tidelog_groups",
    Kind.GAUGE,
    "The groups in the memory of this coordinator: those with members, and those that were used lately.",
    labels=("protocol", "state"),
    kafka=(
        f"{_MANAGER},name=NumGroups",
        f"{_MANAGER},name=NumGroups{{Stable|PreparingRebalance|CompletingRebalance|Empty|Dead}}",
        f"{_GROUPS},protocol=*: group-count",
        f"{_GROUPS},state=*: consumer-group-count",
    ),
)
TRANSACTIONS: Final = Metric(
    "tidelog_transactions",
    Kind.GAUGE,
    "The transactional ids in the memory of this coordinator by state: all with an open or ending transaction.",
    labels=("state",),
)
COMMITTED: Final = Metric(
    "tidelog_group_committed_offset",
    Kind.GAUGE,
    "The committed offset of a group with members, on its coordinator.",
    labels=("group", "topic", "partition"),
)
LAG: Final = Metric(
    "tidelog_group_lag_records",
    Kind.GAUGE,
    "The committed records that a group with members has not consumed, on its coordinator, for the partitions of which "
    "that node has a replica.",
    unit="records",
    labels=("group", "topic", "partition"),
    kafka=("kafka.consumer:type=consumer-fetch-manager-metrics,client-id=*: records-lag-max",),
)
UNMEASURED: Final = Metric(
    "tidelog_group_offsets_without_metrics",
    Kind.GAUGE,
    "The committed offsets beyond metrics.group.offsets.max, which have no metrics.",
)
METRICS: Final = (SHARDS, LOAD_TIME, TRANSACTIONS, GROUPS, COMMITTED, LAG, UNMEASURED)


class CoordinatorMetrics:
    """Reads the metrics of a node's coordinators, of which the first one coordinates groups.

    At most ``max_offsets`` committed offsets have metrics.
    """

    def __init__(
        self,
        groups: ShardCoordinator[Any, Any, Any, Any],
        transactions: ShardCoordinator[Any, Any, Any, Any],
        registry: PartitionRegistry,
        max_offsets: int,
    ) -> None:
        self._groups = groups
        self._coordinators = {"group": groups, "transaction": transactions}
        self._registry = registry
        self._max_offsets = max_offsets

    def families(self) -> Iterator[Family | None]:
        """Yield the metrics, and None between some groups, so that other tasks run."""
        shards: Counter[tuple[str, str]] = Counter()
        for name, coordinator in self._coordinators.items():
            for core in coordinator.cores():
                shards[name, "loading" if core is None else "active"] += 1
        yield SHARDS.of(shards)
        yield LOAD_TIME.of({(name,): each.load_times.snapshot() for name, each in self._coordinators.items()})
        yield from self._transaction_families()
        yield from self._group_families()

    def _transaction_families(self) -> Iterator[Family | None]:
        states: Counter[tuple[str]] = Counter()
        for core in self._coordinators["transaction"].cores():
            if isinstance(core, TransactionShard):
                states.update((state.name.lower(),) for state in core.states())
            yield None
        yield TRANSACTIONS.of(states)

    def _group_families(self) -> Iterator[Family | None]:
        states: Counter[tuple[str, str]] = Counter()
        committed: dict[tuple[str, str, str], float] = {}
        lags: dict[tuple[str, str, str], float] = {}
        unmeasured = number = 0
        for core in self._groups.cores():
            for loaded in core.loaded_groups() if isinstance(core, GroupShard) else ():
                if loaded.exists:
                    states[loaded.protocol, loaded.state_name.lower()] += 1
                if loaded.is_used:
                    unmeasured += self._add_offsets(loaded, committed, lags)
                number += 1
                if number % _GROUPS_PER_STEP == 0:
                    yield None
        yield GROUPS.of(states)
        yield COMMITTED.of(committed)
        yield LAG.of(lags)
        yield UNMEASURED.of(unmeasured)

    def _add_offsets(
        self,
        loaded: LoadedGroup,
        committed: dict[tuple[str, str, str], float],
        lags: dict[tuple[str, str, str], float],
    ) -> int:
        """Add the offsets of a group, and return the number of those beyond the limit."""
        offsets = loaded.offsets.committed
        room = self._max_offsets - len(committed)
        for (topic, index), value in list(offsets.items())[: max(0, room)]:
            labels = loaded.group_id, topic, str(index)
            committed[labels] = value.offset
            partition = self._registry.get(topic, index)
            if partition is not None:
                lags[labels] = max(0, partition.high_watermark - value.offset)
        return max(0, len(offsets) - max(0, room))
