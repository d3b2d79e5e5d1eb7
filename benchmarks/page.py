"""Puts the latest results into ``docs/performance.md``: ``python -m benchmarks.page``.

The page's own words stay; what stands between two markers is replaced by a table: of ``results/latest.json``, and of
``results/kafka.json`` where that was measured. Draws the pictures as well.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from benchmarks import plots
from benchmarks.peers.suite import RESULTS as KAFKA
from benchmarks.suite import LATEST
from benchmarks.table import format_value

PAGE = Path(__file__).parent.parent / "docs" / "performance.md"

_TABLES = {"results": LATEST, "results next to Kafka": KAFKA}


def main() -> None:
    """Replace the tables and the pictures."""
    page = PAGE.read_text()
    for name, path in _TABLES.items():
        if path.exists():
            page = with_table(page, name, table(json.loads(path.read_text())))
    PAGE.write_text(page)
    plots.main()


def with_table(page: str, name: str, table: str) -> str:
    """Return the page with a table between the two markers of a name. Raises SystemExit when it has not both."""
    begin, end = f"<!-- {name}: written by python -m benchmarks.page -->", f"<!-- end of {name} -->"
    before, _, rest = page.partition(begin)
    _, found, after = rest.partition(end)
    if not found:
        raise SystemExit(f"{PAGE} has no markers {begin} and {end}")
    return f"{before}{begin}\n{table}{end}{after}"


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
