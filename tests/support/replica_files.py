"""A byte-by-byte comparison of the log files of all replicas of a partition."""

from __future__ import annotations

from pathlib import Path

from tidelog.testing import LocalCluster
from tidelog_foundation.records import iter_headers


def assert_replicas_equal(cluster: LocalCluster, topic: str, high_watermarks: list[int]) -> None:
    """Assert that below its high watermark each partition has the same bytes on every node.

    The nodes must be stopped.
    """
    for partition, high_watermark in enumerate(high_watermarks):
        logs = {
            node.name: committed_bytes(_folder(node.directory, f"{topic}-{partition}"), high_watermark)
            for node in cluster.nodes.values()
        }
        (first, expected), *others = logs.items()
        for name, log in others:
            where = f"{topic}-{partition} of {first} ({len(expected)} bytes) and {name} ({len(log)} bytes)"
            assert log == expected, f"{where} differ from byte {_first_difference(log, expected)} on"


def _folder(node: Path, name: str) -> Path:
    """Return the folder of a node's replica, in one of its log directories."""
    [folder] = node.glob(f"data*/{name}")
    return folder


def committed_bytes(directory: Path, high_watermark: int) -> bytes:
    """Return a replica's records below the high watermark, over all segments. It must have all of them."""
    data = b"".join(path.read_bytes() for path in sorted(directory.glob("*.log")))
    expected, end = 0, 0
    for position, header in iter_headers(data):
        if header.base_offset >= high_watermark:
            break
        assert header.base_offset == expected, f"{directory} has {header.base_offset} where {expected} should be"
        expected, end = header.next_offset, position + header.size_in_bytes
    assert expected == high_watermark, f"{directory} ends at {expected}, the high watermark is {high_watermark}"
    return data[:end]


def _first_difference(a: bytes, b: bytes) -> int:
    differing = (i for i, (x, y) in enumerate(zip(a, b, strict=False)) if x != y)
    return next(differing, min(len(a), len(b)))
