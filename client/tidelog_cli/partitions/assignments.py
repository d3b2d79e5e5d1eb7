"""The JSON files of reassignments and elections, in the formats of Kafka's tools.

::

    {"version":1,"partitions":[{"topic":"flights","partition":0,"replicas":[1,2],"log_dirs":["any","/disk2"]}]}
    {"version":1,"topics":[{"topic":"flights"}]}
    {"partitions":[{"topic":"flights","partition":0}]}

``log_dirs`` may be left out; ``any`` lets the node choose.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeAlias, TypeVar

from tidelog.admin import TopicPartitionReplica
from tidelog.message import TopicPartition
from tidelog_foundation.errors import ErrorCode, TidelogError, error_for

Assignment: TypeAlias = dict[TopicPartition, tuple[int, ...]]
"""The replicas of partitions; the first is the preferred leader."""

T = TypeVar("T", int, str)

ANY_LOG_DIR = "any"
_VERSION = 1


@dataclass(frozen=True, slots=True)
class ReassignmentFile:
    """The content of a file: the replicas of partitions, and the log directories of replicas that name one."""

    assignment: Assignment
    log_dirs: dict[TopicPartitionReplica, str] = field(default_factory=dict)

    @property
    def topics(self) -> list[str]:
        """The topics in order."""
        return sorted({key.topic for key in self.assignment})

    @property
    def brokers(self) -> list[int]:
        """The nodes in order."""
        return sorted({broker for replicas in self.assignment.values() for broker in replicas})


def read_reassignment(path: Path) -> ReassignmentFile:
    """Read the file of ``--reassignment-json-file``.

    Raises:
        TidelogError: _INVALID_ARG, it is invalid or empty, or names a partition or a replica twice.
        OSError: it cannot be read.
    """
    found = ReassignmentFile({})
    for item in _items(path, _object(path), "partitions"):
        key, replicas = _partition(path, item), _list_of(item.get("replicas"), int)
        if not replicas:
            raise _fault(path, f"{key.topic}-{key.partition} has no list of replicas")
        if key in found.assignment:
            raise _fault(path, f"{key.topic}-{key.partition} is named twice")
        if len(set(replicas)) != len(replicas):
            raise _fault(path, f"{key.topic}-{key.partition} names a replica twice: {replicas}")
        found.assignment[key] = tuple(replicas)
        found.log_dirs.update(_log_dirs(path, key, replicas, item.get("log_dirs")))
    if not found.assignment:
        raise _fault(path, "it names no partition")
    return found


def read_topics(path: Path) -> list[str]:
    """Read the file of ``--topics-to-move-json-file``.

    Raises:
        TidelogError: _INVALID_ARG, it is invalid, or names a topic twice.
        OSError: it cannot be read.
    """
    names = _list_of([item.get("topic") for item in _items(path, _object(path), "topics")], str)
    if not names:
        raise _fault(path, "it names no topic")
    if len(set(names)) != len(names):
        raise _fault(path, f"a topic is named twice: {names}")
    return names


def read_partitions(path: Path) -> list[TopicPartition]:
    """Read the file of ``--path-to-json-file``.

    Raises:
        TidelogError: _INVALID_ARG, it is invalid, or names a partition twice.
        OSError: it cannot be read.
    """
    partitions = [_partition(path, item) for item in _items(path, _object(path), "partitions")]
    if not partitions:
        raise _fault(path, "it names no partition")
    if len(set(partitions)) != len(partitions):
        raise _fault(path, "a partition is named twice")
    return partitions


def to_document(assignment: Mapping[TopicPartition, Sequence[int]]) -> dict[str, object]:
    """Return an assignment as the object in a ``--reassignment-json-file``."""
    partitions = [
        {
            "topic": key.topic,
            "partition": key.partition,
            "replicas": list(assignment[key]),
            "log_dirs": [ANY_LOG_DIR] * len(assignment[key]),
        }
        for key in sorted(assignment)
    ]
    return {"version": _VERSION, "partitions": partitions}


def to_json(assignment: Mapping[TopicPartition, Sequence[int]]) -> str:
    """Return an assignment as the JSON line of a ``--reassignment-json-file``."""
    return json.dumps(to_document(assignment), separators=(",", ":"))


def _object(path: Path) -> dict[str, object]:
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except (json.JSONDecodeError, UnicodeDecodeError) as error:
        raise _fault(path, f"it is not JSON: {error}") from None
    if not isinstance(content, dict):
        raise _fault(path, "it is not a JSON object")
    version = content.get("version", _VERSION)
    if version != _VERSION:
        raise _fault(path, f"its version is {version}, not {_VERSION}")
    return content


def _items(path: Path, content: Mapping[str, object], key: str) -> Iterable[dict[str, object]]:
    items = content.get(key)
    if not isinstance(items, list) or not all(isinstance(item, dict) for item in items):
        raise _fault(path, f'it has no list "{key}" of objects')
    return items


def _partition(path: Path, item: Mapping[str, object]) -> TopicPartition:
    topic, partition = item.get("topic"), item.get("partition")
    if not isinstance(topic, str) or not isinstance(partition, int) or partition < 0:
        raise _fault(path, f'an item without "topic" and "partition": {json.dumps(item)}')
    return TopicPartition(topic, partition)


def _log_dirs(
    path: Path, key: TopicPartition, replicas: Sequence[int], value: object
) -> Iterable[tuple[TopicPartitionReplica, str]]:
    if value is None:
        return
    log_dirs = _list_of(value, str)
    if log_dirs is None or len(log_dirs) != len(replicas):
        raise _fault(path, f"{key.topic}-{key.partition} must have as many log_dirs as replicas: {value}")
    for broker, log_dir in zip(replicas, log_dirs, strict=True):
        if log_dir != ANY_LOG_DIR:
            yield TopicPartitionReplica(key.topic, key.partition, broker), log_dir


def _list_of(value: object, kind: type[T]) -> list[T] | None:
    """Return a list whose items all have a type, None for anything else."""
    # In Python, JSON's true is an int.
    fits = isinstance(value, list) and all(isinstance(v, kind) and not isinstance(v, bool) for v in value)
    return value if fits and isinstance(value, list) else None


def _fault(path: Path, problem: str) -> TidelogError:
    return error_for(ErrorCode._INVALID_ARG, f"{path}: {problem}")
