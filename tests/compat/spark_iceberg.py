"""Writes batches of FilesSink to Iceberg's tables, and prints what Iceberg reads from them as JSON.

``python spark_iceberg.py JAR FOLDER STEP``. The step ``write`` writes tables in many ways. ``killed-before`` and
``killed-after`` write batch 1 of the table ``killed``, and kill the process before or after its commit; ``again``
writes this batch once more.
"""

from __future__ import annotations

import json
import os
import signal
import sys
from collections.abc import Callable, Iterator
from typing import Any

from pyspark.sql import DataFrame, SparkSession

from tidelog import Producer
from tidelog.testing import FakeCluster
from tidelog_connect.configuration import ConfigException
from tidelog_connect.connectors.connector import Batch
from tidelog_connect.connectors.files import iceberg_table
from tidelog_connect.connectors.files.iceberg_table import IcebergTable
from tidelog_connect.connectors.files.sink import FilesSinkConnector
from tidelog_connect.connectors.registry import Registry
from tidelog_connect.standalone.document import parse_document
from tidelog_connect.standalone.plan import pipeline_settings, plan_pipeline
from tidelog_connect.standalone.process import PipelineProcess

QUERY = "0a1b2c3d-query"
PLAIN = (
    "named_struct('id', id, 'country', IF(id % 4 = 0, '', IF(id % 4 = 1, NULL, 'a/b')), 'at', timestamp_seconds(id))"
)
DAY = {"partitioner.class": "DailyPartitioner", "timestamp.extractor": "RecordField", "timestamp.field": "at"}
FIELD = {"partitioner.class": "FieldPartitioner", "partition.field.name": "country"}


class Tables:
    """Sinks that write the topic ``t`` below a folder, and what their tables have."""

    def __init__(self, jar: str, folder: str) -> None:
        catalog = {"spark.sql.catalog.lake.type": "hadoop", "spark.sql.catalog.lake.warehouse": f"{folder}/lake"}
        settings = {"spark.jars": jar, "spark.ui.enabled": "false", "spark.sql.shuffle.partitions": "2", **catalog}
        self.spark = SparkSession.builder.master("local[2]").config(map=settings).getOrCreate()
        self.folder = folder
        self.jvm: Any = self.spark.sparkContext._jvm

    def sink(self, name: str, **settings: str) -> FilesSinkConnector:
        place = {} if "iceberg.catalog" in settings else {"path": f"{self.folder}/{name}"}
        shared = {"name": "s", "topics": "t", "connector.class": "FilesSink", "format.class": "IcebergFormat"}
        return FilesSinkConnector(Registry.installed("1").settings({**shared, **place, **settings}))

    def rows(self, start: int, value: str = PLAIN, count: int = 4) -> DataFrame:
        columns = ("'t' AS topic", "0 AS partition", "id AS offset", f"{value} AS value")
        return self.spark.range(start, start + count, 1, 1).selectExpr(*columns)

    def table(self, path: str) -> Any:
        hadoop = self.spark.sparkContext._jsc.hadoopConfiguration()  # type: ignore[attr-defined]
        return self.jvm.org.apache.iceberg.hadoop.HadoopTables(hadoop).load(f"{self.folder}/{path}")

    def read(self, path: str, where: Any = None) -> list[str]:
        """Return the rows of a table as Iceberg prints them, in the order of their ids."""
        scan = self.jvm.org.apache.iceberg.data.IcebergGenerics.read(self.table(path))
        found = (scan if where is None else scan.where(where)).build().iterator()
        return sorted(_printed(found), key=lambda text: int(text.split(",")[0]))


def _printed(records: Any) -> Iterator[str]:
    while records.hasNext():
        yield str(records.next()).removeprefix("Record(").removesuffix(")")


def in_commit(act: Callable[[], object]) -> None:
    """Let the next commit wait for an action, once it has found that the table lacks the batch."""
    validate = iceberg_table._Fence.validate

    def first(fence: iceberg_table._Fence, ancestors: object) -> bool:
        iceberg_table._Fence.validate = validate  # type: ignore[method-assign]
        found = validate(fence, ancestors)
        act()
        return found

    iceberg_table._Fence.validate = first  # type: ignore[method-assign]


def through_a_topic(tables: Tables) -> list[str]:
    """Write records of a topic by a sink's query, whose batches are calls of Python by Java, and read them."""
    with FakeCluster() as cluster:
        cluster.create_topic("t")
        producer = Producer({"bootstrap.servers": cluster.bootstrap_servers})
        schema = {"type": "struct", "fields": [{"field": "id", "type": "int64"}]}
        document = parse_document(
            json.dumps(
                {
                    "name": "p",
                    "settings": {
                        "bootstrap.servers": cluster.bootstrap_servers,
                        "checkpoint.location": f"{tables.folder}/checkpoints",
                    },
                    "connectors": {
                        "out": {
                            "connector.class": "FilesSink",
                            "format.class": "IcebergFormat",
                            "path": f"{tables.folder}/piped",
                            "topics": "t",
                            "value.converter": "JsonConverter",
                            "value.converter.schemas.enable": "false",
                            "value.converter.schema.content": json.dumps(schema),
                        }
                    },
                }
            )
        )
        chosen = pipeline_settings(document, {})
        registry = Registry.installed("1", chosen.converters)
        for start in (0, 3):
            for number in range(start, start + 3):
                producer.produce("t", json.dumps({"id": number}).encode())
            producer.flush()
            plan = plan_pipeline(document, chosen, registry)
            assert PipelineProcess(plan, registry, lambda: tables.spark, print, once=True).run()
        producer.close()
    return tables.read("piped/t")


def write(tables: Tables) -> dict[str, Any]:
    """Write tables, and return what they have."""
    found: dict[str, Any] = {}
    plain = tables.sink("plain")
    for number in (0, 0, 1, 0, 1):
        plain.put(tables.rows(number * 4, "named_struct('id', CAST(id AS INT))"), Batch(QUERY, number))
    found["repeated"] = tables.read("plain/t")
    for other, number, by in (
        (Batch(QUERY, 2), 2, "same"),
        (Batch(QUERY, 4), 3, "later"),
        (Batch("other", 5), 5, "foreign"),
    ):
        early = tables.rows(100 + number, f"named_struct('id', CAST(id AS INT), 'by', '{by}')", 1)
        late = tables.rows(200 + number, "named_struct('id', CAST(id AS INT), 'by', 'late')", 1)
        in_commit(lambda early=early, other=other: tables.sink("plain").put(early, other))  # type: ignore[misc]
        plain.put(late, Batch(QUERY, number))
    found["in a commit"] = tables.read("plain/t")[8:]
    grown = "named_struct('id', id, 'by', named_struct('x', 1.5D))"
    try:
        plain.put(tables.rows(300, grown, 1), Batch(QUERY, 6))
    except ConfigException as error:
        found["refused"] = error.message
    tables.table("plain/t").updateSchema().renameColumn("by", "who").commit()
    plain.put(tables.rows(300, grown, 1), Batch(QUERY, 6))
    found["evolved"] = tables.read("plain/t")[8:]
    for name, settings in (
        ("field", FIELD),
        ("day", DAY),
        ("lake", {"iceberg.catalog": "lake", "iceberg.namespace": "raw"}),
    ):
        tables.sink(name, **settings).put(tables.rows(86_398), Batch(QUERY, 0))
    equal = tables.jvm.org.apache.iceberg.expressions.Expressions.equal
    found["field"] = tables.read("field/t", equal("country", ""))
    found["day"] = [str(tables.table("day/t").spec()).split()[2], len(tables.read("day/t"))]
    found["catalog"] = len(tables.read("lake/raw/t"))
    lists = "named_struct('tags', array('x', NULL), 'id', id, 'named', map('k', named_struct('y', id)))"
    for number in (0, 1):
        tables.sink("lists").put(tables.rows(number, lists, 1), Batch(QUERY, number))
    found["piped"] = through_a_topic(tables)
    killed = tables.sink("killed")
    killed.put(tables.rows(0), Batch(QUERY, 0))
    return found


def main(jar: str, folder: str, step: str) -> None:
    """Run a step."""
    tables = Tables(jar, folder)
    if step == "write":
        print(json.dumps(write(tables)))
        return
    append = IcebergTable.append

    def end(*_: object) -> None:
        os.kill(os.getpid(), signal.SIGKILL)

    if step == "killed-before":
        IcebergTable.append = end  # type: ignore[assignment,method-assign]
    if step == "killed-after":
        IcebergTable.append = lambda *arguments: end(append(*arguments))  # type: ignore[assignment,method-assign]
    tables.sink("killed").put(tables.rows(4), Batch(QUERY, 1))
    print(json.dumps(tables.read("killed/t")))


if __name__ == "__main__":
    main(*sys.argv[1:])
