"""Damages the log of a stopped node like a crash of its machine: only at or after the recovery point."""

from __future__ import annotations

import os
import random
from collections.abc import Iterator, Mapping
from pathlib import Path

from tidelog_foundation.records import iter_headers

_CHECKPOINT = "recovery-point-offset-checkpoint"


def damage_log(log_dir: Path, kind: str, dice: random.Random) -> str | None:
    """Truncate a log (``truncate``) or flip a bit in it (``flip``), of a partition that ``dice`` picks.

    ``lose`` removes all unflushed data of every log. Everything below a partition's recovery point is on the disk and
    stays unchanged. Return a description, or None if no log has data behind its recovery point.
    """
    points = read_checkpoint(log_dir / _CHECKPOINT)
    candidates = sorted(_unflushed(log_dir, points))
    if not candidates:
        return None
    if kind == "lose":
        for path, start, _ in candidates:
            os.truncate(path, start)
        lost = sum(end - start for _, start, end in candidates)
        return f"{lost} bytes of {len(candidates)} logs were not flushed and are lost"
    path, start, end = dice.choice(candidates)
    where = f"{path.parent.name}/{path.name}"
    position = dice.randrange(start, end)
    if kind == "truncate":
        with path.open("r+b") as file:
            file.truncate(position)
        return f"{where} cut from {end} to {position} bytes"
    with path.open("r+b") as file:
        file.seek(position)
        byte = file.read(1)[0] ^ (1 << dice.randrange(8))
        file.seek(position)
        file.write(bytes([byte]))
    return f"a bit of byte {position} of {where}, which has {end}, flipped"


def read_checkpoint(path: Path) -> dict[str, int]:
    """Return the offset of each ``topic-0`` in one of Kafka's checkpoint files; empty if there is none."""
    if not path.exists():
        return {}
    lines = [line.split(" ") for line in path.read_text().splitlines()[2:]]
    return {f"{topic}-{partition}": int(offset) for topic, partition, offset in lines}


def _unflushed(log_dir: Path, points: Mapping[str, int]) -> Iterator[tuple[Path, int, int]]:
    """Yield each active segment with unflushed data, and the range of those bytes."""
    for folder in log_dir.glob("*-*/"):
        segments = sorted(folder.glob("*.log"))
        if folder.name.rpartition("-")[2].isdecimal() and segments:
            segment = segments[-1]
            data = segment.read_bytes()
            point = points.get(folder.name, 0)
            start = next((p for p, h in iter_headers(data) if h.base_offset >= point), len(data))
            if start < len(data):
                yield segment, start, len(data)
