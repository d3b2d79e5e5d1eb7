"""``tidelog pipeline run``: connectors of a file move records on Spark, go on where they were, and take turns."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest
from connect_server import wait_for
from pyspark.sql import SparkSession

from tidelog.testing import FakeCluster
from tidelog_connect.connectors.registry import Registry
from tidelog_connect.standalone.document import parse_document
from tidelog_connect.standalone.plan import pipeline_settings, plan_pipeline
from tidelog_connect.standalone.process import PipelineProcess
from tidelog_foundation.errors import TidelogError


class Pipeline:
    """Lines of a file to a topic and from there to another file."""

    def __init__(self, cluster: FakeCluster, folder: Path, spark: SparkSession, setting: str = "") -> None:
        self.source, self.target, self.spark = folder / "in.txt", folder / "out.txt", spark
        self.lines: list[str] = []
        self.document = parse_document(
            f"""
name: lines
settings:
  bootstrap.servers: {cluster.bootstrap_servers}
  session.timeout.ms: 3000
  checkpoint.location: {folder / "checkpoints"}
  {setting}
connectors:
  pipe-out: {{connector.class: FileStreamSink, topics: lines, file: {self.target}}}
  pipe-in: {{connector.class: FileStreamSource, topic: lines, file: {self.source}}}
"""
        )

    def process(self, *, once: bool) -> PipelineProcess:
        settings = pipeline_settings(self.document, {})
        registry = Registry.installed("1", settings.converters)
        plan = plan_pipeline(self.document, settings, registry)
        return PipelineProcess(plan, registry, lambda: self.spark, self.lines.append, once=once)


@pytest.mark.compat
def test_pipeline_processes_what_is_there_once_and_goes_on_where_it_was(tmp_path: Path, spark: SparkSession) -> None:
    with FakeCluster() as cluster:
        cluster.create_topic("lines")
        pipeline = Pipeline(cluster, tmp_path, spark)
        pipeline.source.write_text("a\nb\n")
        assert pipeline.process(once=True).run()
        assert pipeline.target.read_text() == "a\nb\n"
        assert "pipe-in: 1 batches written" in pipeline.lines
        assert pipeline.process(once=True).run()
        assert pipeline.target.read_text() == "a\nb\n"
        with pipeline.source.open("a") as file:
            file.write("c\n")
        assert pipeline.process(once=True).run()
        assert pipeline.target.read_text() == "a\nb\nc\n"
        pipeline.source.write_text("")
        with pytest.raises(TidelogError, match=r"connector pipe-in has failed: ValueError: .* has 0 bytes"):
            pipeline.process(once=True).run()


@pytest.mark.compat
def test_sinks_batches_have_at_most_as_many_offsets_as_the_setting_says(tmp_path: Path, spark: SparkSession) -> None:
    with FakeCluster() as cluster:
        cluster.create_topic("lines")
        pipeline = Pipeline(cluster, tmp_path, spark, "sink.max.offsets.per.trigger: 2")
        text = "".join(f"line {number}\n" for number in range(5))
        pipeline.source.write_text(text)
        assert pipeline.process(once=True).run()
        assert pipeline.target.read_text() == text
        # The commit markers of the source have offsets too.
        [batches] = [
            int(line.split()[1]) for line in pipeline.lines if line.startswith("pipe-out: ") and "written" in line
        ]
        assert batches >= 3


@pytest.mark.compat
def test_second_run_of_a_pipeline_waits_and_takes_over_when_the_first_is_stopped(
    tmp_path: Path, spark: SparkSession
) -> None:
    with FakeCluster() as cluster:
        cluster.create_topic("lines")
        pipeline = Pipeline(cluster, tmp_path, spark)
        pipeline.source.write_text("a\n")
        ended: list[bool] = []
        first, second = pipeline.process(once=False), pipeline.process(once=False)
        threads = [threading.Thread(target=lambda run=each.run: ended.append(run())) for each in (first, second)]
        try:
            threads[0].start()
            wait_for(lambda: pipeline.target.exists() and pipeline.target.read_text() == "a\n")
            threads[1].start()
            wait_for(lambda: sum("waits for its turn" in line for line in pipeline.lines) == 2)
            assert pipeline.lines.count("pipe-in: running") == 1
            first.stop()
            threads[0].join()
            with pipeline.source.open("a") as file:
                file.write("b\n")
            wait_for(lambda: pipeline.target.read_text() == "a\nb\n")
        finally:
            for process, thread in zip((first, second), threads, strict=True):
                process.stop()
                if thread.ident is not None:
                    thread.join()
        assert ended == [True, True]
