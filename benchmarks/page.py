"""The latest results in ``docs/performance.md`` and README: ``python -m benchmarks.page``.

It replaces the text between pairs of markers: on the page with the tables of ``results/latest.json``,
``results/kafka.json``, the other ``results/kafka-*.json``, ``results/authorization.json`` and
``results/pythons.json``, in README with a short comparison with Kafka. It also draws the plots.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from benchmarks.peers.suite import RESULTS as KAFKA
from benchmarks.pythons import RESULTS as PYTHONS
from benchmarks.suite import LATEST
from benchmarks.table import format_value

_REPOSITORY = Path(__file__).parent.parent
PAGE = _REPOSITORY / "docs" / "performance.md"
README = _REPOSITORY / "README.md"

KAFKA_TRANSACTIONS = KAFKA.with_name("kafka-transactions.json")
KAFKA_TLS = KAFKA.with_name("kafka-tls.json")
KAFKA_ABUSE = KAFKA.with_name("kafka-abuse.json")
KAFKA_SPARK = KAFKA.with_name("kafka-spark.json")
KAFKA_SCALE = KAFKA.with_name("kafka-scale.json")
KAFKA_MANY = KAFKA.with_name("kafka-many.json")
KAFKA_CONNECTORS = KAFKA.with_name("kafka-connectors.json")
KAFKA_COPIES = KAFKA.with_name("kafka-copies.json")
AUTHORIZATION = KAFKA.with_name("authorization.json")
_TABLES = {
    "results": LATEST,
    "results next to Kafka": KAFKA,
    "results of transactions next to Kafka": KAFKA_TRANSACTIONS,
    "results over TLS next to Kafka": KAFKA_TLS,
    "results beside a greedy client": KAFKA_ABUSE,
    "results of Spark next to Kafka": KAFKA_SPARK,
    "results of small requests and scale next to Kafka": KAFKA_SCALE,
    "results of many partitions and clients next to Kafka": KAFKA_MANY,
    "results of connectors next to Kafka Connect": KAFKA_CONNECTORS,
    "results of links and mirrors of Kafka": KAFKA_COPIES,
    "results of authorization": AUTHORIZATION,
    "results of Python versions": PYTHONS,
}
_COMPARED = {
    "cold start of 3+3 to the first acknowledged record": "Cold start of 3 controllers and 3 nodes",
    "memory of 3+3, idle: resident": "Memory of the idle cluster",
    "produce, 1 KiB, 3 nodes, RF 3, acks=all": "Produce, 1 KiB, 3 replicas, `acks=all`",
    "synchronous produce, 1 KiB, 3 nodes, RF 3, acks=all: p50": "Latency of one record, `acks=all`, median",
    "leader killed to writable again": "Leader killed: not writable for",
}
"""The results in README, with their titles there."""


def main() -> None:
    """Replace the tables and the plots."""
    page = PAGE.read_text()
    for name, path in _TABLES.items():
        if path.exists():
            page = with_table(page, name, table(json.loads(path.read_text())))
    PAGE.write_text(page)
    if KAFKA.exists():
        comparison = comparison_with_kafka(json.loads(KAFKA.read_text()))
        README.write_text(with_table(README.read_text(), "comparison with Kafka", comparison))
    from benchmarks import plots  # Only a new page needs matplotlib, which takes a second to import.

    plots.main()


def with_table(page: str, name: str, table: str) -> str:
    """Return the page with a table between the two markers of a name.

    Raises:
        SystemExit: A marker is missing.
    """
    begin, end = f"<!-- {name}: written by python -m benchmarks.page -->", f"<!-- end of {name} -->"
    before, _, rest = page.partition(begin)
    _, found, after = rest.partition(end)
    if not found:
        raise SystemExit(f"missing markers: {begin} and {end}")
    return f"{before}{begin}\n{table}{end}{after}"


def table(document: dict[str, Any]) -> str:
    """Return the results as a sentence about the machine and a Markdown table."""
    machine = document["machine"]
    python = machine.get("pythons", machine["python"])
    engine = "compiled" if machine["compiled_engine"] else "pure Python"
    lines = [
        f"Measured on {machine['date']} at revision `{machine['revision']}`: {machine['cpu']}, {machine['cpus']} CPUs,"
        f" {machine['memory_gib']} GiB, {machine['system']}, Python {python}, {engine} record engine.",
        "",
        "| name | value | unit | compared with | ratio | bar | holds |",
        "|---|--:|---|---|--:|---|---|",
        *map(_line, document["results"]),
        "",
    ]
    return "\n".join(lines)


def comparison_with_kafka(document: dict[str, Any]) -> str:
    """Return the most important results next to Kafka's as a short Markdown table."""
    rows = {row["name"]: row for row in document["results"]}
    lines = ["| | Tidelog | Apache Kafka |", "|---|--:|--:|"]
    for row, title in [(rows[name], title) for name, title in _COMPARED.items() if name in rows]:
        peer = row["compared_with"].rpartition(" at ")[2]
        lines.append(f"| {title} | {format_value(row['value'])} {row['unit']} | {peer} {row['unit']} |")
    return "\n".join([*lines, ""])


def _line(row: dict[str, Any]) -> str:
    ratio = "" if row["ratio"] is None else f"{row['ratio']:.2f}"
    holds = {None: "", True: "yes", False: "**no**"}[row["holds"]]
    cells = (row["name"], format_value(row["value"]), row["unit"], row["compared_with"] or "", ratio, row["bar"] or "")
    return f"| {' | '.join(cells)} | {holds} |"


if __name__ == "__main__":
    main()
