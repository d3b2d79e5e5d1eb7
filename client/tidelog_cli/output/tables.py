"""Lays out tables as text, as wide as their cells or within the width of a terminal. Pure."""

from __future__ import annotations

import re
from collections.abc import Sequence
from itertools import zip_longest

_GAP = "  "
_READABLE_WIDTH = 20
"""A folded column of text keeps this width: narrower columns break names into too many pieces."""
_MAX_FOLDS = 5
"""A row that takes more lines is easier to read with one line per column."""
_NOTHING = "-"
_PIECE = re.compile(r"[^ ,;/:=\-.]*[ ,;/:=\-.]?")


def layout(headers: Sequence[str], rows: Sequence[Sequence[object]], width: int | None = None) -> list[str]:
    """Return the lines of a table; columns of numbers, which may include ``-``, are aligned to the right.

    Without a ``width`` a row is one line. With one, lines fit if possible, by these steps in turn: texts that all rows
    share move above the table; text and headers fold after a separator; each row becomes a block with one line per
    column. Nothing is ever truncated, and no number or word is broken.
    """
    cells = [[str(cell) for cell in row] for row in rows]
    numeric = [_is_numeric([row[i] for row in rows]) for i in range(len(headers))]
    if width is None or _line_width(headers, cells) <= width:
        return _table(headers, cells, numeric, _widths(headers, cells))
    kept = _kept(cells, numeric)
    above = [f"{header}: {cells[0][i]}" for i, header in enumerate(headers) if i not in kept]
    headers, numeric = [headers[i] for i in kept], [numeric[i] for i in kept]
    cells = [[row[i] for i in kept] for row in cells]
    widths = _fit(_widths(headers, cells), _least_widths(headers, cells, numeric), width)
    if widths is None or any(
        len(_fold(cell, w)) > _MAX_FOLDS for row in cells for cell, w in zip(row, widths, strict=True)
    ):
        return [*above, *_blocks(headers, cells)]
    return [*above, *_table(headers, cells, numeric, widths)]


def _is_numeric(cells: Sequence[object]) -> bool:
    return any(isinstance(c, int) for c in cells) and all(isinstance(c, int) or c == _NOTHING for c in cells)


def _kept(cells: Sequence[Sequence[str]], numeric: Sequence[bool]) -> list[int]:
    """Return the columns that stay in the table: numbers, and texts that differ."""
    is_shared = [len(cells) > 1 and len(set(column)) == 1 for column in zip(*cells, strict=True)]
    columns = range(len(numeric))
    return [i for i in columns if numeric[i] or not (is_shared and is_shared[i])] or list(columns)


def _widths(headers: Sequence[str], cells: Sequence[Sequence[str]]) -> list[int]:
    return [max(map(len, column)) for column in zip(headers, *cells, strict=True)]


def _line_width(headers: Sequence[str], cells: Sequence[Sequence[str]]) -> int:
    return sum(_widths(headers, cells)) + len(_GAP) * (len(headers) - 1)


def _least_widths(headers: Sequence[str], cells: Sequence[Sequence[str]], numeric: Sequence[bool]) -> list[int]:
    """Return the minimum width of each column: the longest piece that folding leaves whole."""
    least = []
    for header, column, is_number in zip(headers, zip(*cells, strict=True), numeric, strict=True):
        longest = max((len(cell) for cell in column), default=0)
        text = longest if is_number else min(longest, max(_READABLE_WIDTH, *map(_longest_piece, column)))
        least.append(max(text, _longest_piece(header)))
    return least


def _longest_piece(text: str) -> int:
    return max(len(piece.rstrip(" ")) for piece in _PIECE.findall(text))


def _fit(wanted: Sequence[int], least: Sequence[int], width: int) -> list[int] | None:
    """Return widths for lines of ``width``, taken from the widest columns first; None when they cannot fit."""
    widths = list(wanted)
    room = width - len(_GAP) * (len(wanted) - 1)
    while sum(widths) > room:
        able = [i for i, each in enumerate(widths) if each > least[i]]
        if not able:
            return None
        widths[max(able, key=lambda i: widths[i])] -= 1
    return widths


def _table(
    headers: Sequence[str], cells: Sequence[Sequence[str]], numeric: Sequence[bool], widths: Sequence[int]
) -> list[str]:
    return [line for row in [headers, *cells] for line in _lines(row, widths, numeric)]


def _lines(row: Sequence[str], widths: Sequence[int], numeric: Sequence[bool]) -> list[str]:
    folded = [_fold(cell, width) for cell, width in zip(row, widths, strict=True)]
    lines = []
    for parts in zip_longest(*folded, fillvalue=""):
        padded = [p.rjust(w) if right else p.ljust(w) for p, w, right in zip(parts, widths, numeric, strict=True)]
        lines.append(_GAP.join(padded).rstrip())
    return lines


def _fold(cell: str, width: int) -> list[str]:
    """Split a cell after separators; a piece that is wider than ``width`` stays whole."""
    parts = [""]
    for piece in _PIECE.findall(cell):
        if len((parts[-1] + piece).rstrip(" ")) > width and parts[-1]:
            parts.append("")
        parts[-1] += piece
    return [part.rstrip(" ") for part in parts]


def _blocks(headers: Sequence[str], cells: Sequence[Sequence[str]]) -> list[str]:
    """Return each row as lines of a header and its value, with an empty line between rows."""
    labels = max(map(len, headers)) + len(_GAP)
    blocks = [
        [f"{header:<{labels}}{cell}".rstrip() for header, cell in zip(headers, row, strict=True)] for row in cells
    ]
    return [line for index, block in enumerate(blocks) for line in (["", *block] if index else block)]
