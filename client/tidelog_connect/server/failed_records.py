"""`FailedRecords`: separates the records of a batch that a converter or transform cannot process from the good ones.

Steps mark such records in the column ``failure`` (`tidelog_connect.records`). The batch is evaluated once for that, and
kept in Spark's cache until it is written. A pipeline whose steps cannot fail does not have this cost.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from pyspark.sql import functions as sql

from tidelog_connect.errors import TOLERANCE_EXCEEDED
from tidelog_connect.records import CONNECT_EXCEPTION, Records
from tidelog_foundation.errors import ErrorCode, error_for

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


@contextmanager
def good_records(records: Records) -> Iterator[DataFrame]:
    """Provide the rows without failures.

    Raises:
        TidelogError: a record has failed.
    """
    if not records.can_fail:
        yield records.frame
        return
    frame = records.frame.persist()
    try:
        failed = frame.where(sql.col("failure").isNotNull()).select("topic", "partition", "offset", "failure").take(1)
        if failed:
            [row] = failed
            failure = row["failure"]
            place = row["topic"] if row["offset"] is None else f"{row['topic']}-{row['partition']}@{row['offset']}"
            raise error_for(
                ErrorCode._FAIL,
                f"{CONNECT_EXCEPTION}: {TOLERANCE_EXCEEDED}. Record {place}, {failure['stage']} by {failure['class']}: "
                f"{failure['exception']}: {failure['message']}",
            )
        yield frame.where(sql.col("failure").isNull())
    finally:
        frame.unpersist()
