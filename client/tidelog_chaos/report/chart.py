"""The timeline of a run as one SVG: faults, throughput, latency, unavailable partitions and leaders over one axis.

Colours and fonts are the page's; everything that a colour shows is in a text too. All panels share the time axis, and
the bands of the faults cross all of them.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from html import escape
from itertools import groupby, pairwise

from tidelog_chaos.history import merge_spans
from tidelog_chaos.report.availability import Fault, Window
from tidelog_chaos.report.run import Run
from tidelog_chaos.report.series import Leaders, Reign, Step
from tidelog_chaos.report.table import clock, milliseconds

WIDTH, LEFT, RIGHT = 1_200, 128, 56
"""The chart's width and the horizontal bounds of the panels, in its own units."""
_PLOT = WIDTH - LEFT - RIGHT
_LANE, _ROW, _GAP = 20, 15, 26
_TALL, _SHORT = 130, 46
_COLOURS = 7
_TICKS_S = (1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1_800, 3_600, 7_200, 21_600, 86_400)
_LEAST_LABEL = 22.0
_LINE = 14
_LETTER, _INSET = 6.0, 5.0
_DOT = "m-1.5 0h3m-1.5 -1.5v3"


def timeline(run: Run) -> str:
    """Return the SVG of a run."""
    return _Timeline(run).draw()


class _Timeline:
    """Draws one panel below another; ``y`` is the top of the next one."""

    def __init__(self, run: Run) -> None:
        self._run = run
        self._end_s = max(run.series.end_s, 1)
        self._y = 8.0
        self._parts: list[str] = []

    def draw(self) -> str:
        self._draw_faults()
        top = self._y
        self._draw_throughput()
        self._draw_latency()
        self._draw_unavailable()
        self._draw_leaders()
        bottom = self._y - _GAP + 10
        bands = "".join(self._bands(top - 14, bottom))
        axis = "".join(self._axis(top - 14, bottom))
        height = bottom + 34
        return (
            f'<svg id="timeline" viewBox="0 0 {WIDTH} {height:.0f}" role="img" aria-labelledby="timeline-title" '
            f'data-left="{LEFT}" data-plot="{_PLOT}" data-end="{self._end_s}" data-width="{WIDTH}">'
            f'<title id="timeline-title">{escape(self._title())}</title>'
            f"{bands}{axis}{''.join(self._parts)}"
            f'<line id="cursor" class="cursor" x1="0" x2="0" y1="0" y2="{bottom:.0f}" visibility="hidden"/></svg>'
        )

    def _title(self) -> str:
        run = self._run
        return (
            f"Timeline of {clock(self._end_s)}: {len(run.faults)} faults, {run.series.acknowledged_per_s:,.0f} values "
            f"per second acknowledged on average, {len(run.windows)} times a partition was unavailable"
        )

    def _x(self, time_s: float) -> float:
        return LEFT + _PLOT * min(max(time_s, 0.0), self._end_s) / self._end_s

    def _bands(self, top: float, bottom: float) -> Iterator[str]:
        for start_s, end_s in merge_spans((fault.start_ns / 1e9, fault.end_ns / 1e9) for fault in self._run.faults):
            x, width = self._x(start_s), max(self._x(end_s) - self._x(start_s), 1.0)
            yield f'<rect class="band" x="{x:.1f}" y="{top:.0f}" width="{width:.1f}" height="{bottom - top:.0f}"/>'

    def _axis(self, top: float, bottom: float) -> Iterator[str]:
        step_s = next((tick for tick in _TICKS_S if self._end_s / tick <= 12), _TICKS_S[-1])
        for time_s in range(0, self._end_s + 1, step_s):
            x = self._x(time_s)
            yield f'<line class="grid" x1="{x:.1f}" x2="{x:.1f}" y1="{top:.0f}" y2="{bottom:.0f}"/>'
            yield f'<text class="tick" x="{x:.1f}" y="{bottom + 18:.0f}" text-anchor="middle">{clock(time_s)}</text>'
        for name, time_s in self._run.about.get("outcome", {}).get("phases_s", {}).items():
            if name in ("faults", "recovery"):
                x, text = self._x(time_s), {"faults": "faults begin", "recovery": "all healed"}[name]
                yield f'<line class="phase" x1="{x:.1f}" x2="{x:.1f}" y1="{top:.0f}" y2="{bottom + 4:.0f}"/>'
                yield f'<text class="phase-name" x="{x + 4:.1f}" y="{bottom + 32:.0f}">{text}</text>'

    def _draw_faults(self) -> None:
        for name in sorted({fault.name for fault in self._run.faults}):
            self._label(escape(name), self._y + _LANE / 2 + 4)
            lane = [fault for fault in self._run.faults if fault.name == name]
            ends = [following.start_ns / 1e9 for following in lane[1:]]
            for fault, free_s in zip(lane, [*ends, math.inf], strict=True):
                self._parts.append(self._fault(fault, free_s))
            self._y += _LANE
        self._y += _GAP

    def _fault(self, fault: Fault, free_s: float) -> str:
        """Return the bar of a fault, with its kind inside if there is space until the next one in its lane."""
        start_s, end_s = fault.start_ns / 1e9, fault.end_ns / 1e9
        x, width = self._x(start_s), max(self._x(end_s) - self._x(start_s), 2.0)
        text = f"{fault.what}, from {clock(start_s)} for {milliseconds((end_s - start_s) * 1e3)}"
        drawn = (
            f'<rect class="fault" x="{x:.1f}" y="{self._y + 3:.0f}" width="{width:.1f}" height="{_LANE - 6}" rx="3">'
            f"<title>{escape(text)}</title></rect>"
        )
        room = min(width, self._x(free_s) - x) - 2 * _INSET
        if not fault.kind or room < _LETTER * len(fault.kind):
            return drawn
        return (
            f'{drawn}<text class="fault-name" x="{x + _INSET:.1f}" y="{self._y + 14:.0f}">{escape(fault.kind)}</text>'
        )

    def _draw_throughput(self) -> None:
        step_s = self._run.series.step_s
        steps = self._run.series.steps
        top = max(((step.ok + step.info + step.fail) / step_s for step in steps), default=1)
        ceiling = _nice(top)
        self._panel("values sent", "per second", _TALL)
        self._scale([(value, f"{value:,.6g}") for value in (0, ceiling / 2, ceiling)], ceiling, _TALL)
        ok = [(place * step_s, step.ok / step_s) for place, step in enumerate(steps)]
        self._parts.append(f'<path class="ok" d="{self._area(ok, step_s, ceiling, _TALL)}"/>')
        bad = [(place * step_s, (step.info + step.fail) / step_s) for place, step in enumerate(steps)]
        for time_s, value in bad:
            if value:
                self._parts.append(self._column(time_s, step_s, max(value / ceiling, 0.02), _TALL))
        self._y += _TALL + _GAP

    def _draw_latency(self) -> None:
        latencies = [step.latency for step in self._run.series.steps if step.latency is not None]
        low = math.floor(math.log10(max(0.1, min((latency[0] for latency in latencies), default=1.0))))
        high = max(low + 1, math.ceil(math.log10(max(1.0, *(latency[1] for latency in latencies), 1.0))))
        self._panel("latency", "logarithmic", _TALL)
        decades = [(float(power - low), _decade(power)) for power in range(low, high + 1)]
        self._scale(decades, high - low, _TALL)
        above = self._y
        for rank, name in ((1, "p99"), (0, "p50")):
            points = self._latency_points(rank, low)
            self._parts.append(f'<path class="{name}" d="{self._line(points, high - low, _TALL)}"/>')
            if points:
                above = max(self._height(points[-1][-1][1], high - low, _TALL) + 4, above + _LINE)
                x = self._x(points[-1][-1][0]) + 6
                self._parts.append(f'<text class="end {name}" x="{x:.1f}" y="{above:.1f}">{name}</text>')
        self._y += _TALL + _GAP

    def _latency_points(self, rank: int, low: int) -> list[list[tuple[float, float]]]:
        """Return runs of points without a gap: the line has a gap wherever nothing was acknowledged."""
        series = self._run.series
        numbered = [
            (place, (place + 0.5) * series.step_s, math.log10(max(step.latency[rank], 0.1)) - low)
            for place, step in enumerate(series.steps)
            if step.latency is not None
        ]
        grouped = groupby(enumerate(numbered), key=lambda entry: entry[1][0] - entry[0])
        return [[(time_s, value) for _, (_, time_s, value) in group] for _, group in grouped]

    def _draw_unavailable(self) -> None:
        counts = _concurrent(self._run.windows)
        most = max((count for _, count in counts), default=0)
        ceiling = max(1, most)
        self._panel("partitions", "unavailable", _SHORT)
        self._scale([(0.0, "0"), (float(ceiling), str(ceiling))], ceiling, _SHORT)
        for (start_s, count), (end_s, _) in pairwise(counts):
            if count:
                x, width = self._x(start_s), max(self._x(end_s) - self._x(start_s), 1.0)
                y = self._height(count, ceiling, _SHORT)
                height = self._y + _SHORT - y
                self._parts.append(
                    f'<rect class="down" x="{x:.1f}" y="{y:.1f}" width="{width:.1f}" height="{height:.1f}"/>'
                )
        self._y += _SHORT + _GAP

    def _draw_leaders(self) -> None:
        leaders = self._run.leaders
        colour = colours(leaders)
        if leaders.rows:
            self._label("leaders", self._y + 1)
            self._label("node per partition", self._y + 15, "sub")
        for row in leaders.rows:
            self._parts.extend(self._reign(reign, colour) for reign in row)
            self._y += _ROW
        if leaders.controller:
            self._y += 8
            self._label("controller", self._y + 11)
            self._parts.extend(self._reign(reign, colour) for reign in leaders.controller)
            self._y += _ROW
        self._y += _GAP

    def _reign(self, reign: Reign, colour: dict[int, int]) -> str:
        x, width = self._x(reign.start_s), max(self._x(reign.end_s) - self._x(reign.start_s), 0.5)
        name = "none" if reign.leader is None else f"node{colour[reign.leader]}"
        who = "no leader" if reign.leader is None else f"{reign.leader} leads"
        drawn = (
            f'<rect class="reign {name}" x="{x:.1f}" y="{self._y:.1f}" width="{width:.1f}" height="{_ROW - 2}">'
            f"<title>{escape(f'{reign.key}: {who}, {clock(reign.start_s)} to {clock(reign.end_s)}')}</title></rect>"
        )
        if width < _LEAST_LABEL:
            return drawn
        text = "none" if reign.leader is None else str(reign.leader)
        return f'{drawn}<text class="reign-name {name}" x="{x + 5:.1f}" y="{self._y + 10.5:.1f}">{text}</text>'

    def _panel(self, name: str, unit: str, height: int) -> None:
        self._label(name, self._y + 10)
        self._label(unit, self._y + 25, "sub")
        y = self._y + height
        self._parts.append(f'<line class="base" x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{y:.0f}" y2="{y:.0f}"/>')

    def _label(self, text: str, y: float, kind: str = "label") -> None:
        self._parts.append(f'<text class="{kind}" x="0" y="{y:.1f}">{text}</text>')

    def _scale(self, ticks: Sequence[tuple[float, str]], ceiling: float, height: int) -> None:
        for value, text in ticks:
            y = self._height(value, ceiling, height)
            self._parts.append(f'<line class="grid" x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{y:.1f}" y2="{y:.1f}"/>')
            self._parts.append(f'<text class="tick" x="{LEFT - 8}" y="{y + 4:.1f}" text-anchor="end">{text}</text>')

    def _height(self, value: float, ceiling: float, height: int) -> float:
        return self._y + height * (1 - min(value / ceiling, 1.0))

    def _column(self, time_s: float, step_s: int, share: float, height: int) -> str:
        x, width = self._x(time_s), max(self._x(time_s + step_s) - self._x(time_s) - 0.5, 1.0)
        tall = height * min(share, 1.0)
        return (
            f'<rect class="bad" x="{x:.1f}" y="{self._y + height - tall:.1f}" width="{width:.1f}" height="{tall:.1f}"/>'
        )

    def _area(self, points: Sequence[tuple[float, float]], step_s: int, ceiling: float, height: int) -> str:
        base = self._y + height
        way = [f"M{LEFT} {base:.0f}"]
        for time_s, value in points:
            y = self._height(value, ceiling, height)
            way.append(f"L{self._x(time_s):.1f} {y:.1f}H{self._x(time_s + step_s):.1f}")
        return f"{''.join(way)}V{base:.0f}Z"

    def _line(self, stretches: Sequence[Sequence[tuple[float, float]]], ceiling: float, height: int) -> str:
        way = []
        for stretch in stretches:
            pairs = [f"{self._x(time_s):.1f} {self._height(value, ceiling, height):.1f}" for time_s, value in stretch]
            way.append(f"M{'L'.join(pairs)}" if len(pairs) > 1 else f"M{pairs[0]}{_DOT}")
        return "".join(way)


def colours(leaders: Leaders) -> dict[int, int]:
    """Return the page's colour number of each node and each controller; equal numbers are equal colours."""
    controllers = {reign.leader for reign in leaders.controller if reign.leader is not None}
    return {node: place % _COLOURS for place, node in enumerate(sorted({*leaders.nodes, *controllers}))}


def _concurrent(windows: Sequence[Window]) -> list[tuple[float, int]]:
    """Return the times from which each number of partitions was unavailable."""
    changes = sorted(change for window in windows for change in ((window.start_ns / 1e9, 1), (window.end_ns / 1e9, -1)))
    counts: list[tuple[float, int]] = []
    for time_s, change in changes:
        counts.append((time_s, (counts[-1][1] if counts else 0) + change))
    return counts


def _nice(value: float) -> float:
    """Return a round number at or slightly above a value."""
    power = 10.0 ** math.floor(math.log10(max(value, 1.0)))
    return next(factor * power for factor in (1, 1.5, 2, 2.5, 3, 4, 5, 6, 8, 10) if factor * power >= value)


def _decade(power: int) -> str:
    return f"{10.0**power:g} ms" if power < 3 else f"{10.0 ** (power - 3):g} s"


def steps_of(run: Run) -> list[list[float | None]]:
    """Return the page's data of each step: ok, unknown, failed, read, and the latency in milliseconds."""
    return [[step.ok, step.info, step.fail, step.read, *_rounded(step)] for step in run.series.steps]


def _rounded(step: Step) -> tuple[float | None, ...]:
    return (None, None, None) if step.latency is None else tuple(round(value, 1) for value in step.latency)
