"""Inventories of nodes: the ends of the logs on a stopped node's disks, as a JSON document.

``tidelog log replicas`` writes them. A restored quorum chooses leaders by them (``restoration``).
"""

from __future__ import annotations

import base64
import json
from collections.abc import Mapping
from typing import Any

from tidelog_foundation.dataclass import dataclass
from tidelog_foundation.errors import ErrorCode, TidelogError, error_for
from tidelog_foundation.ids import BrokerEpoch, BrokerId, TopicId, topic_id_text

_FORMAT = 1


@dataclass(frozen=True, slots=True, order=True)
class LogEnd:
    """The end of a log: the leader epoch of its last batch, -1 without any, and its log end offset.

    Of two replicas of a partition, the one with the greater end has all committed records that the other one has: its
    last batch comes from a later leader, or from the same leader later (section 5.4.1 of the Raft paper; KIP-966).
    """

    leader_epoch: int
    log_end_offset: int


@dataclass(frozen=True, slots=True)
class StoredReplica:
    """A replica on a disk."""

    topic: str
    topic_id: TopicId
    partition: int
    end: LogEnd


@dataclass(frozen=True, slots=True)
class ReplicaInventory:
    """The replicas of a node. ``clean_shutdown_epoch`` is None after an unclean shutdown, -1 if it is unknown."""

    cluster_id: str
    node_id: BrokerId
    clean_shutdown_epoch: BrokerEpoch | None
    replicas: tuple[StoredReplica, ...]


def inventory_document(inventory: ReplicaInventory) -> dict[str, Any]:
    """Return the JSON document of an inventory."""
    return {
        "format": _FORMAT,
        "cluster_id": inventory.cluster_id,
        "node": inventory.node_id,
        "clean_shutdown_epoch": inventory.clean_shutdown_epoch,
        "replicas": [
            {
                "topic": replica.topic,
                "partition": replica.partition,
                "topic_id": topic_id_text(replica.topic_id),
                "leader_epoch": replica.end.leader_epoch,
                "log_end_offset": replica.end.log_end_offset,
            }
            for replica in inventory.replicas
        ],
    }


def parse_inventory(text: str, name: str) -> ReplicaInventory:
    """Return the inventory in a JSON document; ``name`` is its file's, for errors.

    Raises:
        TidelogError: INVALID_REQUEST, it is not an inventory of this format.
    """
    try:
        document = json.loads(text)
        if document["format"] != _FORMAT:
            raise _invalid(name, f"its format is {document['format']}, not {_FORMAT}")
        epoch = document["clean_shutdown_epoch"]
        return ReplicaInventory(
            cluster_id=str(document["cluster_id"]),
            node_id=BrokerId(int(document["node"])),
            clean_shutdown_epoch=None if epoch is None else BrokerEpoch(int(epoch)),
            replicas=tuple(map(_replica, document["replicas"])),
        )
    except (ValueError, KeyError, TypeError) as error:
        raise _invalid(name, f"{type(error).__name__}: {error}") from error


def _replica(document: Mapping[str, Any]) -> StoredReplica:
    end = LogEnd(int(document["leader_epoch"]), int(document["log_end_offset"]))
    topic_id = TopicId(base64.b64decode(str(document["topic_id"]) + "==", altchars=b"-_", validate=True))
    return StoredReplica(str(document["topic"]), topic_id, int(document["partition"]), end)


def _invalid(name: str, why: str) -> TidelogError:
    text = f"{name} is not an inventory of tidelog log replicas --json: {why}"
    return error_for(ErrorCode.INVALID_REQUEST, text)
