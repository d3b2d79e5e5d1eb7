"""`Filter`: records left out, by a predicate."""

from __future__ import annotations

from dataclasses import replace

from pyspark.sql import functions as sql

from tidelog_connect.configuration import ConfigDef
from tidelog_connect.records import Records

CONFIG = ConfigDef()


def drop(records: Records) -> Records:
    """Return the records to which the step does not apply, and those that have failed."""
    assert records.step is not None
    applies = records.step.applies
    left = sql.lit(False) if applies is None else ~sql.coalesce(applies, sql.lit(False))
    return replace(records, frame=records.frame.where(sql.col("failure").isNotNull() | left))
