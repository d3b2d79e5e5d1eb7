"""Tables as lines of text, and numbers in readable form."""

from __future__ import annotations

from collections.abc import Sequence

_GAP = "  "


def table_lines(headers: Sequence[str], rows: Sequence[Sequence[str]]) -> list[str]:
    """Return rows under headers, in columns as wide as their widest cell; all but the first are aligned right."""
    widths = [max(len(row[column]) for row in [headers, *rows]) for column in range(len(headers))]
    return [
        _GAP.join(
            cell.rjust(width) if column else cell.ljust(width)
            for column, (cell, width) in enumerate(zip(row, widths, strict=True))
        ).rstrip()
        for row in [headers, *rows]
    ]


def milliseconds(duration_ms: float | None) -> str:
    """Return ``4.2 ms``, ``310 ms`` or ``3.02 s``."""
    if duration_ms is None:
        return "-"
    if duration_ms < 10:
        return f"{duration_ms:.1f} ms"
    return f"{duration_ms:.0f} ms" if duration_ms < 1_000 else f"{duration_ms / 1_000:.2f} s"


def clock(time_s: float) -> str:
    """Return ``0:07``, ``12:30`` or ``1:02:03``."""
    minutes, seconds = divmod(int(time_s), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{seconds:02}" if hours else f"{minutes}:{seconds:02}"
