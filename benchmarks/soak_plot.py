"""The plot of a soak test: ``python -m benchmarks.soak_plot soak.json soak.svg``."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import matplotlib

matplotlib.use("Agg")

from matplotlib import pyplot

_TITLES = {
    "memory_mb": "Memory, MB",
    "descriptors": "Descriptors",
    "tasks": "Tasks of the event loop",
    "disk_mb": "Disk, MB",
}
_NODE_COLORS, _CONTROLLER_COLORS = ("#1f77b4", "#4f9bd0", "#8ec1e6"), ("#d9730d", "#e89a4e", "#f3c292")


def draw(source: Path, path: Path) -> None:
    """Draw each quantity of each process over the time, with the events."""
    result: dict[str, Any] = json.loads(source.read_text())
    figure, grid = pyplot.subplots(2, 2, figsize=(9.5, 6), layout="constrained", sharex=True)
    names = list(dict.fromkeys(sample["process"] for sample in result["samples"]))
    for axes, (quantity, title) in zip(grid.flat, _TITLES.items(), strict=True):
        for name in names:
            mine = [s for s in result["samples"] if s["process"] == name]
            colors = _NODE_COLORS if name.startswith("node") else _CONTROLLER_COLORS
            color = colors[int(name.rpartition(" ")[2]) % len(colors)]
            minutes = [sample["time_s"] / 60 for sample in mine]
            axes.plot(minutes, [s["values"][quantity] for s in mine], color=color, label=name, linewidth=1)
        for time_s, text in result["events"]:
            if text.endswith("begins") and not text.startswith("load"):
                axes.axvline(time_s / 60, color="#999999", linestyle=":", linewidth=1)
                label = text.removesuffix(" begins")
                axes.annotate(label, (time_s / 60, 1), xycoords=("data", "axes fraction"), fontsize=7, va="top")
        axes.set_title(title, loc="left", fontsize=10)
        axes.set_ylim(bottom=0)
        axes.grid(axis="y", color="#eeeeee")
        axes.spines[["top", "right"]].set_visible(False)
    for axes in grid[1]:
        axes.set_xlabel("minutes")
    grid[0][0].legend(fontsize=7, ncols=2)
    figure.savefig(path)
    pyplot.close(figure)


if __name__ == "__main__":
    draw(Path(sys.argv[1]), Path(sys.argv[2]))
