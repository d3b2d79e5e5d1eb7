"""Compares the files of all replicas of a partition below its high watermark: they must be identical, byte by byte."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from pathlib import Path

from tidelog_foundation.records import iter_headers

_DIGEST_BYTES = 8


def committed_digests(folder: Path, high_watermark: int) -> list[str]:
    """Return a line per batch of a replica below the high watermark: its offsets and a digest of its bytes.

    The offsets are those of the first and the last record; batches with a gap between them give different lines. A
    batch that reaches beyond the high watermark does not count.
    """
    lines: list[str] = []
    for segment in sorted(folder.glob("*.log")):
        data = segment.read_bytes()
        for position, header in iter_headers(data):
            if header.next_offset > high_watermark:
                return lines
            batch = memoryview(data)[position : position + header.size_in_bytes]
            digest = hashlib.blake2b(batch, digest_size=_DIGEST_BYTES).hexdigest()
            lines.append(f"{header.base_offset}-{header.next_offset - 1}:{digest}")
    return lines


def compare(
    folders: Mapping[str, Mapping[str, Path]], high_watermarks: Mapping[str, int]
) -> dict[str, dict[str, list[str]]]:
    """Return for each key the digests of each node's replica; ``folders`` has their paths."""
    return {
        key: {node: committed_digests(folder, high_watermarks[key]) for node, folder in sorted(of_key.items())}
        for key, of_key in sorted(folders.items())
    }
