"""The comparison of Spark's stored records with the producer's delivery reports, record by record."""

from __future__ import annotations

import zlib
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow.dataset as ds

from examples.flights import dataset
from examples.flights.dataset import Figures
from examples.flights.ledger import Ledger


@dataclass(frozen=True, slots=True)
class Audit:
    """The result of the comparison. Everything but ``stored`` must be zero or empty."""

    stored: int
    duplicates: int
    lost: int
    misplaced: int
    altered: int
    out_of_order: int
    differing_figures: tuple[str, ...]

    @property
    def passed(self) -> bool:
        """True if no record is lost, duplicated, altered or out of order, and no figure differs."""
        found = (self.duplicates, self.lost, self.misplaced, self.altered, self.out_of_order, self.differing_figures)
        return not any(found)


def audit(ledger: Ledger, parquet: Path, figures: Figures) -> Audit:
    """Compare every acknowledged row with the Parquet files, and the figures with those of the CSV."""
    table = ds.dataset(parquet).to_table(columns=["row", "key", "value", "partition", "offset"])
    rows, partitions, offsets = (table[name].to_numpy() for name in ("row", "partition", "offset"))
    order = np.lexsort((offsets, partitions))
    rows, partitions, offsets = rows[order], partitions[order], offsets[order]
    acknowledged = np.asarray(ledger.partitions) >= 0
    present = np.zeros(ledger.rows, dtype=bool)
    present[rows] = True
    return Audit(
        stored=len(rows),
        duplicates=len(rows) - int(present.sum()),
        lost=int((acknowledged & ~present).sum()),
        misplaced=_misplaced(ledger, acknowledged & present, rows, partitions, offsets),
        altered=_altered(ledger, table["value"].to_pylist(), table["row"].to_numpy()),
        out_of_order=_out_of_order(rows, np.asarray(table["key"].to_pylist())[order]),
        differing_figures=_differences(figures),
    )


def _misplaced(
    ledger: Ledger, expected: np.ndarray, rows: np.ndarray, partitions: np.ndarray, offsets: np.ndarray
) -> int:
    at_acknowledged_place = (partitions == np.asarray(ledger.partitions)[rows]) & (
        offsets == np.asarray(ledger.offsets)[rows]
    )
    found = np.zeros(ledger.rows, dtype=bool)
    found[rows[at_acknowledged_place]] = True
    return int((expected & ~found).sum())


def _altered(ledger: Ledger, values: list[bytes], rows: np.ndarray) -> int:
    checksums = np.fromiter((zlib.crc32(value) for value in values), dtype=np.uint64, count=len(values))
    return int((checksums != np.asarray(ledger.checksums, dtype=np.uint64)[rows]).sum())


def _out_of_order(rows: np.ndarray, keys: np.ndarray) -> int:
    """Return the number of rows that follow a later row of the same key, in the order of the log."""
    return sum(int((np.diff(rows[keys == key]) < 0).sum()) for key in np.unique(keys))


def _differences(figures: Figures) -> tuple[str, ...]:
    expected = dataset.figures_of_csv()
    return tuple(
        f"{carrier} {month}: {figures.get((carrier, month))} instead of {expected.get((carrier, month))}"
        for carrier, month in sorted(set(figures) | set(expected))
        if figures.get((carrier, month)) != expected.get((carrier, month))
    )
