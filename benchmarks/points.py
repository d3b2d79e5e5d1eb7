"""The points of the benchmark ``scale`` as stored between the measurement and its plots."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

Axis = Literal["partitions", "segments"]

SCALE = Path(__file__).parent / "results" / "scale.json"


@dataclass(frozen=True, slots=True)
class Point:
    """One measurement at a number of partitions or segments.

    Each read is of one batch. ``open_ms`` is the time to open all logs. ``memory_bytes`` is the growth of the process's
    own memory, without mapped files, since it opened them, and ``open_files`` is the number of file descriptors.
    """

    count: int
    append_p50_us: float
    append_p99_us: float
    read_p50_us: float
    open_ms: float
    memory_bytes: float
    open_files: float

    @property
    def memory_kib_each(self) -> float:
        """The memory per partition or segment in KiB. For small counts the shared memory dominates it."""
        return self.memory_bytes / self.count / 1024


def write_points(axes: Mapping[Axis, Sequence[Point]]) -> None:
    """Write the points of both axes to :data:`SCALE`."""
    SCALE.parent.mkdir(parents=True, exist_ok=True)
    document = {axis: [_rounded(point) for point in points] for axis, points in axes.items()}
    SCALE.write_text(json.dumps(document, indent=2) + "\n")


def read_points(axis: Axis) -> list[Point]:
    """Return the most recently written points."""
    return [Point(**point) for point in json.loads(SCALE.read_text())[axis]]


def _rounded(point: Point) -> dict[str, float]:
    return {name: float(f"{value:.4g}") for name, value in dataclasses.asdict(point).items()} | {"count": point.count}
