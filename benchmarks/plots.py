"""Plots of the cost by number of partitions and segments: ``python -m benchmarks.plots``.

It reads ``results/scale.json``, which the benchmark ``scale`` writes, and replaces the pictures in ``docs/images/``.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import matplotlib

matplotlib.use("Agg")

from matplotlib import pyplot
from matplotlib.axes import Axes

from benchmarks.points import Axis, Point, read_points

IMAGES = Path(__file__).parent.parent / "docs" / "images"

_BLUE, _ORANGE, _GREEN, _GREY = "#1f77b4", "#d9730d", "#2a8a4a", "#666666"
_LEAST_COUNT_FOR_MEMORY = 100
_LABEL_HEIGHT = 0.075


def main() -> None:
    """Draw both plots."""
    IMAGES.mkdir(parents=True, exist_ok=True)
    for axis in ("partitions", "segments"):
        draw(axis, read_points(axis), IMAGES / f"cost-per-{axis.removesuffix('s')}.png")


def draw(axis: Axis, points: Sequence[Point], path: Path) -> None:
    """Draw latency (left) and memory (right) over the number of partitions or segments."""
    figure, (latency, memory) = pyplot.subplots(1, 2, figsize=(9, 3.4), width_ratios=(3, 2), layout="constrained")
    _draw_latency(latency, points)
    _draw_memory(memory, axis, points)
    for axes in (latency, memory):
        axes.set_xlabel("partitions in one process" if axis == "partitions" else "segments of one partition")
        axes.set_axisbelow(True)
        axes.grid(axis="y", color="#dddddd")
        axes.spines[["top", "right"]].set_visible(False)
    figure.savefig(path, dpi=130)
    pyplot.close(figure)


def _draw_latency(axes: Axes, points: Sequence[Point]) -> None:
    names = [f"{point.count:,}" for point in points]
    lines = (
        ("append p99", [point.append_p99_us for point in points], _ORANGE),
        ("read p50", [point.read_p50_us for point in points], _GREEN),
        ("append p50", [point.append_p50_us for point in points], _BLUE),
    )
    highest = max(max(values) for _, values, _ in lines)
    heights = _apart([values[-1] for _, values, _ in lines], highest * _LABEL_HEIGHT)
    for (label, values, color), height in zip(lines, heights, strict=True):
        axes.plot(names, values, marker="o", color=color, clip_on=False, zorder=3)
        axes.text(len(names) - 0.85, height, label, color=color, va="center")
    axes.set_ylim(0, highest * 1.1)
    axes.set_title("Latency of one batch of 1 KiB, µs", loc="left", fontsize=11)


def _apart(heights: Sequence[float], distance: float) -> list[float]:
    """Return the heights of labels, moved up where two would overlap."""
    placed: dict[int, float] = {}
    lowest = 0.0
    for index in sorted(range(len(heights)), key=heights.__getitem__):
        placed[index] = max(heights[index], lowest)
        lowest = placed[index] + distance
    return [placed[index] for index in range(len(heights))]


def _draw_memory(axes: Axes, axis: Axis, points: Sequence[Point]) -> None:
    """Draw bars of the memory of each. For small counts the shared memory would hide it."""
    shown = [point for point in points if point.count >= _LEAST_COUNT_FOR_MEMORY]
    names, heights = [f"{point.count:,}" for point in shown], [point.memory_kib_each for point in shown]
    bars = axes.bar(names, heights, 0.6, color=_GREY)
    axes.bar_label(bars, fmt="%.1f", padding=2)
    axes.set_ylim(0, max(heights) * 1.15)
    axes.set_title(f"Memory per {axis.removesuffix('s')}, KiB", loc="left", fontsize=11)


if __name__ == "__main__":
    main()
