"""Puts the latest results into ``docs/performance.md``: ``python -m benchmarks.page``.

The page's own words stay; what stands between its two markers is replaced by the table of ``results/latest.json``.
Draws the pictures as well.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from benchmarks import plots
from benchmarks.suite import LATEST
from benchmarks.table import format_value

PAGE = Path(__file__).parent.parent / "docs" / "performance.md"

_BEGIN, _END = "<!-- results: written by python -m benchmarks.page -->", "<!-- end of results -->"


def main() -> None:
    """Replace the table and the pictures."""
    before, _, rest = PAGE.read_text().partition(_BEGIN)
    _, _, after = rest.partition(_END)
    if not after:
        raise SystemExit(f"{PAGE} has no markers {_BEGIN} and {_END}")
    PAGE.write_text(f"{before}{_BEGIN}\n{table(json.loads(LATEST.read_text()))}{_END}{after}")
    plots.main()


def table(document: dict[str, Any]) -> str:
    """Return the results as a sentence about the machine and a Markdown table."""
    machine = document["machine"]
    engine = "compiled" if machine["compiled_engine"] else "pure Python"
    lines = [
        f"Measured on {machine['date']} at revision `{machine['revision']}`: {machine['cpu']}, {machine['cpus']} CPUs,"
        f" {machine['memory_gib']} GiB, {machine['system']}, Python {machine['python']}, {engine} record engine.",
        "",
        "| name | value | unit | compared with | ratio | bar | holds |",
        "|---|--:|---|---|--:|---|---|",
        *map(_line, document["results"]),
        "",
    ]
    return "\n".join(lines)


def _line(row: dict[str, Any]) -> str:
    ratio = "" if row["ratio"] is None else f"{row['ratio']:.2f}"
    holds = {None: "", True: "yes", False: "**no**"}[row["holds"]]
    cells = (row["name"], format_value(row["value"]), row["unit"], row["compared_with"] or "", ratio, row["bar"] or "")
    return f"| {' | '.join(cells)} | {holds} |"


if __name__ == "__main__":
    main()
