"""Rows of a batch that are kept in Spark's cache while it is written."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING

from py4j.protocol import Py4JError

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


@contextmanager
def persisted(rows: DataFrame) -> Iterator[DataFrame]:
    """Keep rows in Spark's cache within a with statement.

    A JVM that has ended cannot release them. The error of the statement's body says so, and it is not replaced.
    """
    kept = rows.persist()
    try:
        yield kept
    finally:
        with suppress(Py4JError, OSError):
            kept.unpersist()
