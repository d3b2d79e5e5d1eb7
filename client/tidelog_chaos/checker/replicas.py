"""The replicas of each partition below its high watermark: all must be equal.

The comparison is between lists of texts, one per batch or per range of the log, from the log's start to the high
watermark: each has its range and its digest, such as ``"0-41:9f3a01c7"``. Two replicas are equal if their lists are.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial

from tidelog_chaos.verdict import Case, Findings

ReplicaLogs = Mapping[str, Mapping[str, Sequence[str]]]
"""The digests of the log below the high watermark, by partition (``orders-3``) and node."""


def find_divergent(replica_logs: ReplicaLogs, findings: Findings) -> None:
    """Add divergent-replicas: each partition at most once, with the first place at which two of its replicas differ."""
    for key, logs in replica_logs.items():
        names = list(logs)
        for name in names[1:]:
            if list(logs[name]) != list(logs[names[0]]):
                findings.add("divergent-replicas", partial(_case, key, logs, (names[0], name)))
                break


def _case(key: str, logs: Mapping[str, Sequence[str]], pair: tuple[str, str]) -> Case:
    first, second = (logs[name] for name in pair)
    place = next(
        (place for place, (one, other) in enumerate(zip(first, second, strict=False)) if one != other),
        min(len(first), len(second)),
    )
    found = {name: log[place] if place < len(log) else None for name, log in logs.items()}
    said = " and ".join(f"{found[name] or 'nothing'} on {name}" for name in pair)
    return {
        "text": f"{key}: the replicas differ from entry {place} on: {said}",
        "key": key,
        "position": place,
        "replicas": found,
        "ops": [],
    }
