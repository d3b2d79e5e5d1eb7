"""A Spark program that copies topics with a streaming query, until it is killed or the query fails.

The first line of the standard input has the settings, as JSON:

    servers     settings of Tidelog's clients
    copies      {input topic: output topic}; a record keeps its partition
    checkpoint  the folder of the query's checkpoint
    source      further options for reading
    config      settings of the Spark session
    master      the master of the Spark session
    failure     a file for the error of a query that fails

The program ends with the standard input, so that it does not outlive the process that started it. Exit code 2 means
that the settings are wrong and another start would fail as well.
"""

from __future__ import annotations

import json
import os
import re
import sys
import threading
from collections.abc import Mapping
from pathlib import Path
from typing import IO, Any

from pyspark.errors import PySparkException
from pyspark.sql.datasource import DataSource
from pyspark.sql.streaming.query import StreamingQuery

import tidelog.spark
from tidelog.spark import TidelogDataSource

_WRONG_SETTINGS = 2
_SHOWN = 2_000
_RAISED = re.compile(r"[\w.]*(Error|Exception)\b.*:")


def main(settings: Mapping[str, Any], source: type[DataSource], sink: type[DataSource]) -> int:
    """Copy with these data sources, and return the exit code."""
    try:
        start(settings, source, sink).awaitTermination()
    except PySparkException as error:
        text = str(error)
        Path(settings["failure"]).write_text(_reason(text))
        return _WRONG_SETTINGS if "ConfigError" in text else 1
    return 0


def start(settings: Mapping[str, Any], source: type[DataSource], sink: type[DataSource]) -> StreamingQuery:
    """Start the query."""
    spark = tidelog.spark.session("copy", settings["master"], settings["config"])
    for each in {source, sink}:
        spark.dataSource.register(each)
    topics = ", ".join(f"'{taken}', '{given}'" for taken, given in settings["copies"].items())
    reader = spark.readStream.format(source.name()).options(**settings["servers"], **settings["source"])
    records = reader.option("subscribe", ",".join(settings["copies"])).option("startingOffsets", "earliest").load()
    copies = records.selectExpr("key", "value", f"element_at(map({topics}), topic) AS topic", "partition")
    writer = copies.writeStream.format(sink.name()).options(**settings["servers"])
    return writer.option("checkpointLocation", settings["checkpoint"]).start()


def read_settings(stdin: IO[str]) -> dict[str, Any]:
    """Return the settings, and end the process when the input ends."""
    settings: dict[str, Any] = json.loads(stdin.readline())

    def end() -> None:
        stdin.read()
        os._exit(0)

    threading.Thread(target=end, daemon=True).start()
    return settings


def _reason(text: str) -> str:
    """Return the part of a query's error that says why, in one line: the last Python exception in it, if there is one.

    Spark's message has the tracebacks of both languages, and its plan.
    """
    lines = [line.strip() for line in text.partition("=== Streaming Query")[0].splitlines() if line.strip()]
    raised = [line for line in lines if _RAISED.match(line)]
    return (raised or lines or ["no reason"])[-1 if raised else 0][:_SHOWN]


if __name__ == "__main__":
    sys.exit(main(read_settings(sys.stdin), TidelogDataSource, TidelogDataSource))
