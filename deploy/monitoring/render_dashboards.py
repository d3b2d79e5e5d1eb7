"""Draws the dashboards in ``dashboards/`` with the answers of a real Prometheus about a busy cluster.

``python deploy/monitoring/render_dashboards.py`` runs the cluster of ``monitored_cluster``, asks Prometheus for every
panel, and writes one image per dashboard to ``docs/images/dashboards``. Panels stand where Grafana puts them, with the
dashboard's units and legends. It exits with 1 if a panel has no data, and names it. It needs the program
``prometheus``.
"""

from __future__ import annotations

import argparse
import io
import json
import logging
import math
import re
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, MaxNLocator
from monitored_cluster import SCRAPE_S, Prometheus, busy_cluster, expression_of, inject_faults, scraped
from PIL import Image

REPOSITORY: Final = Path(__file__).resolve().parents[2]
DASHBOARDS: Final = REPOSITORY / "deploy" / "monitoring" / "dashboards"
_IMAGES: Final = REPOSITORY / "docs" / "images" / "dashboards"
_COLUMNS: Final = 24
_WIDTH_IN: Final = 14.0
_ROW_IN: Final = 0.29
"""The height of one of Grafana's grid units."""
_DPI: Final = 72
_LEGEND_WIDTH: Final = 24
"""The longest legend in characters of which four fit beside each other."""
_PALETTE: Final = 96
"""The colors of an image, which are fewer than it has without a palette: it takes a third of the space."""
_COLORS: Final = [
    "#56a64b",
    "#f2cc0c",
    "#5794f2",
    "#ff780a",
    "#e02f44",
    "#b877d9",
    "#37872d",
    "#8ab8ff",
    "#fa6400",
    "#c4162a",
    "#8f3bb8",
    "#73bf69",
]
_STATES: Final = {"green": "#37872d", "red": "#c4162a"}
_SCALES: Final = {
    "bytes": ((2**30, "GiB"), (2**20, "MiB"), (2**10, "KiB"), (1, "B")),
    "Bps": ((10**9, "GB/s"), (10**6, "MB/s"), (10**3, "kB/s"), (1, "B/s")),
    "short": ((10**9, "Bil"), (10**6, "Mil"), (10**3, "K"), (1, "")),
    "cps": ((10**3, "K c/s"), (1, "c/s")),
    "reqps": ((10**3, "K req/s"), (1, "req/s")),
    "s": ((86_400, "days"), (3_600, "hours"), (1, "s"), (10**-3, "ms"), (10**-6, "µs")),
    "percentunit": ((0.01, "%"),),
}
"""Grafana's units: their parts, the largest first."""


@dataclass(frozen=True, slots=True)
class Line:
    """A series of a panel: times since the start in seconds, and values; NaN where the series has a gap."""

    legend: str
    times_s: tuple[float, ...]
    values: tuple[float, ...]


@dataclass(frozen=True, slots=True)
class Drawing:
    """A panel of a dashboard as its JSON has it, with its series."""

    panel: Mapping[str, Any]
    lines: tuple[Line, ...]

    @property
    def has_data(self) -> bool:
        """True if there is a value; a row has none and needs none."""
        return self.panel["type"] == "row" or any(line.values for line in self.lines)


def text_of(value: float, unit: str) -> str:
    """Return a value as Grafana shows it, such as ``1.5 kB/s``."""
    scale = _SCALES[unit]
    factor, name = next((each for each in scale if abs(value) >= each[0]), scale[-1])
    if value == 0:
        factor, name = next((each for each in scale if each[0] == 1), scale[-1])
    return f"{value / factor:.3g} {name}".rstrip()


def drawings(dashboard: Mapping[str, Any], prometheus: Prometheus, start_s: float, end_s: float) -> list[Drawing]:
    """Return the panels of a dashboard with what Prometheus knows of a time."""
    return [
        Drawing(
            panel,
            tuple(
                line
                for target in panel.get("targets", ())
                for line in _lines(
                    target, prometheus.query_range(expression_of(target["expr"]), start_s, end_s), start_s
                )
            ),
        )
        for panel in dashboard["panels"]
    ]


def draw(title: str, panels: Sequence[Drawing]) -> Figure:
    """Return the dashboard as one figure."""
    height = max(each.panel["gridPos"]["y"] + each.panel["gridPos"]["h"] for each in panels)
    figure = Figure((_WIDTH_IN, (height + 2) * _ROW_IN), dpi=_DPI, facecolor="#f4f5f5")
    FigureCanvasAgg(figure)
    top = 1 - 2 / (height + 2)
    figure.text(0.01, 1 - 1 / (height + 2), title, fontsize=16, weight="bold", va="center")
    for each in panels:
        place = each.panel["gridPos"]
        left, width = place["x"] / _COLUMNS, place["w"] / _COLUMNS
        bottom = top * (1 - (place["y"] + place["h"]) / height)
        _draw_panel(figure, each, (left, bottom, width, top * place["h"] / height))
    return figure


def _save(figure: Figure, path: Path) -> None:
    content = io.BytesIO()
    figure.savefig(content, format="png")
    with Image.open(content) as image:
        image.convert("RGB").quantize(_PALETTE, dither=Image.Dither.NONE).save(path, optimize=True)


def _lines(target: Mapping[str, Any], series: Sequence[Mapping[str, Any]], start_s: float) -> Iterator[Line]:
    for each in series:
        legend = _legend(target.get("legendFormat") or "", each["metric"])
        points = [(float(at) - start_s, float(value)) for at, value in each["values"]]
        known = list(_with_gaps([(at, value) for at, value in points if math.isfinite(value)]))
        yield Line(legend, tuple(at for at, _ in known), tuple(value for _, value in known))


def _with_gaps(points: Sequence[tuple[float, float]]) -> Iterator[tuple[float, float]]:
    """Yield the points, with a NaN where one is missing: a process that does not run has no values."""
    before_s = math.inf
    for at, value in points:
        if at - before_s > 1.5 * SCRAPE_S:
            yield at, math.nan
        yield at, value
        before_s = at


def _legend(template: str, labels: Mapping[str, str]) -> str:
    """Return a series' legend, without the folder of a log directory, which differs from run to run."""
    text = re.sub(r"\{\{(\w+)\}\}", lambda found: labels.get(found[1], ""), template)
    return re.sub(r"\S*/(?=\S)", "", text)


def _draw_panel(figure: Figure, drawing: Drawing, place: tuple[float, float, float, float]) -> None:
    left, bottom, width, height = place
    panel = drawing.panel
    if panel["type"] == "row":
        figure.text(left + 0.01, bottom + height / 2, f"▾ {panel['title']}", fontsize=12, weight="bold", va="center")
        return
    frame = figure.add_axes((left + 0.004, bottom + 0.002, width - 0.008, height - 0.004), facecolor="white")
    frame.set_xticks([])
    frame.set_yticks([])
    for spine in frame.spines.values():
        spine.set_color("#d9dce0")
    frame.set_title(panel["title"], fontsize=10, y=1.0, pad=-13, loc="left", x=0.01)
    if not drawing.has_data:
        frame.text(0.5, 0.45, "No data", ha="center", va="center", fontsize=13, color="#888888")
    elif panel["type"] == "stat":
        _draw_stat(frame, drawing)
    else:
        inch = 1 / (figure.get_figheight())
        _draw_graph(
            figure.add_axes(
                (left + 0.06, bottom + 0.62 * inch, width - 0.075, height - 0.98 * inch), facecolor="white"
            ),
            drawing,
        )


def _draw_stat(frame: Axes, drawing: Drawing) -> None:
    defaults = drawing.panel["fieldConfig"]["defaults"]
    value = drawing.lines[0].values[-1]
    steps = defaults["thresholds"]["steps"]
    color = next(step["color"] for step in reversed(steps) if step["value"] is None or value >= step["value"])
    frame.text(0.5, 0.4, text_of(value, defaults["unit"]), ha="center", va="center", fontsize=22, color=_STATES[color])


def _draw_graph(axes: Axes, drawing: Drawing) -> None:
    unit = drawing.panel["fieldConfig"]["defaults"]["unit"]
    lines = sorted((line for line in drawing.lines if line.values), key=lambda line: line.legend)
    for number, line in enumerate(lines):
        axes.plot(line.times_s, line.values, color=_COLORS[number % len(_COLORS)], linewidth=1.2, label=line.legend)
    greatest = max(value for line in lines for value in line.values if math.isfinite(value))
    axes.set_ylim(0, greatest * 1.08 if greatest > 0 else 1)
    axes.yaxis.set_major_locator(MaxNLocator(4))
    axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: text_of(value, unit)))
    axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{int(value) // 60}:{int(value) % 60:02}"))
    axes.tick_params(labelsize=8, length=0, colors="#555555")
    axes.grid(color="#e8eaec", linewidth=0.7)
    for spine in axes.spines.values():
        spine.set_visible(False)
    _draw_legend(axes, [line.legend for line in lines])


def _draw_legend(axes: Axes, legends: Sequence[str]) -> None:
    """Draw two rows of legends, and the number of those without room."""
    if not any(legends):
        return
    columns = 4 if max(map(len, legends)) <= _LEGEND_WIDTH else 2
    handles, _ = axes.get_legend_handles_labels()
    names = [*legends[: 2 * columns]]
    if len(legends) > len(names):
        names[-1] += f" (+{len(legends) - len(names)})"
    axes.legend(
        handles[: len(names)],
        names,
        loc="upper left",
        bbox_to_anchor=(-0.08, -0.12),
        ncols=columns,
        fontsize=7,
        frameon=False,
        columnspacing=1.2,
        handlelength=1.2,
    )


def main(arguments: Sequence[str]) -> int:
    """Run the cluster, and write the images."""
    logging.basicConfig(level=logging.WARNING)
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--output", type=Path, default=_IMAGES, help="the folder of the images")
    parser.add_argument("--seconds", type=float, default=120.0, help="the time of load around the faults")
    options = parser.parse_args(arguments)
    options.output.mkdir(parents=True, exist_ok=True)
    missing = []
    with (
        tempfile.TemporaryDirectory() as folder,
        busy_cluster() as cluster,
        scraped(cluster, Path(folder)) as prometheus,
    ):
        start_s = time.time()
        time.sleep(options.seconds / 2)
        inject_faults(cluster, pause_s=options.seconds / 8)
        time.sleep(options.seconds / 4)
        end_s = time.time()
        for path in sorted(DASHBOARDS.glob("*.json")):
            dashboard = json.loads(path.read_text())
            panels = drawings(dashboard, prometheus, start_s, end_s)
            missing += [f"{dashboard['title']}: {each.panel['title']}" for each in panels if not each.has_data]
            _save(draw(dashboard["title"], panels), options.output / f"{path.stem}.png")
    for name in missing:
        print(f"no data: {name}", file=sys.stderr)
    return 1 if missing else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
