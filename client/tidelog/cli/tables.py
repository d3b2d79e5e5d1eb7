"""Lays out tables as text: columns as wide as their widest cell, or folded to the width of a terminal. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import zip_longest

_GAP = "  "
_LEAST_WIDTH = 8
"""A column that is folded stays so wide, unless its header is wider."""
_NOTHING = "-"
_BREAKS = " ,;/:=-."


def layout(headers: Sequence[str], rows: Sequence[Sequence[object]], width: int | None = None) -> list[str]:
    """Return the lines of a table; columns of numbers, among which ``-`` may be, stand to the right.

    With a ``width`` the widest columns of text are folded, after a separator where there is one, until each line fits
    or nothing can be folded any more. Nothing is ever cut off.
    """
    cells = [[str(cell) for cell in row] for row in rows]
    numeric = [_is_numeric([row[i] for row in rows]) for i in range(len(headers))]
    wanted = [max(len(row[i]) for row in [list(headers), *cells]) for i in range(len(headers))]
    least = [w if right else min(w, max(_LEAST_WIDTH, len(h))) for w, right, h in zip(wanted, numeric, headers)]  # noqa: B905
    widths = wanted if width is None else _fit(wanted, least, width - len(_GAP) * (len(headers) - 1))
    return [line for row in [list(headers), *cells] for line in _lines(row, widths, numeric)]


def _is_numeric(cells: Sequence[object]) -> bool:
    return any(isinstance(c, int) for c in cells) and all(isinstance(c, int) or c == _NOTHING for c in cells)


def _fit(wanted: Sequence[int], least: Sequence[int], room: int) -> list[int]:
    """Return widths whose sum is at most ``room``, if ``least`` allows it, taken from the widest columns first."""
    widths = list(wanted)
    while sum(widths) > room:
        able = [i for i, width in enumerate(widths) if width > least[i]]
        if not able:
            break
        widths[max(able, key=lambda i: widths[i])] -= 1
    return widths


def _lines(row: Sequence[str], widths: Sequence[int], numeric: Sequence[bool]) -> list[str]:
    folded = [_fold(cell, width) for cell, width in zip(row, widths, strict=True)]
    lines = []
    for parts in zip_longest(*folded, fillvalue=""):
        padded = [p.rjust(w) if right else p.ljust(w) for p, w, right in zip(parts, widths, numeric, strict=True)]
        lines.append(_GAP.join(padded).rstrip())
    return lines


def _fold(cell: str, width: int) -> list[str]:
    parts = []
    while len(cell) > width:
        at = max(cell.rfind(separator, 0, width) for separator in _BREAKS) + 1
        at = at if at > 0 else width
        parts.append(cell[:at].rstrip(" "))
        cell = cell[at:].lstrip(" ")
    return [*parts, cell]
