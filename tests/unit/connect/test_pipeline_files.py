"""Pipelines of files: parsing with places, plans, explanations, and the stages of a run. No Spark, no cluster."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml
from connect_in_memory import MemoryQueries
from hypothesis import given
from hypothesis import strategies as st
from typer.testing import CliRunner

from tidelog_cli.commands import app
from tidelog_connect.connectors.registry import Registry
from tidelog_connect.herder.supervision import StopConnector
from tidelog_connect.standalone.document import Mark, PipelineError, parse_document
from tidelog_connect.standalone.explanation import explanation
from tidelog_connect.standalone.plan import PipelinePlan, pipeline_settings, plan_pipeline
from tidelog_connect.standalone.runner import PipelineRunner

ORDERS = """\
name: orders
settings:
  bootstrap.servers: node:9094
  spark.hadoop.fs.s3a.secret.key: s3cret
connectors:
  out:
    connector.class: FileStreamSink
    topics: [a, b]
    file: out.txt
    tasks.max: 2
    transforms: route
    transforms.route: {type: RegexRouter, regex: "(.*)", replacement: raw-$1}
  in:
    connector.class: FileStreamSource
    file: in.txt
    topic: a
"""


def planned(text: str = ORDERS) -> PipelinePlan:
    document = parse_document(text)
    settings = pipeline_settings(document, {})
    return plan_pipeline(document, settings, Registry.installed("1", settings.converters))


def problems(text: str) -> list[str]:
    with pytest.raises(PipelineError) as caught:
        planned(text)
    return caught.value.lines("f.yaml")


def test_settings_are_text_lists_and_nested_names_with_their_places() -> None:
    out = parse_document(ORDERS).connectors["out"]
    assert out.mark == Mark(6, 3)
    assert out.values["topics"] == "a,b"
    assert out.values["tasks.max"] == "2"
    assert out.values["transforms.route.replacement"] == "raw-$1"
    assert out.mark_of("transforms.route.regex") == Mark(12, 43)
    assert out.mark_of("absent") == Mark(6, 3)


@given(st.dictionaries(st.from_regex(r"[a-z][a-z.]{0,8}[a-z]", fullmatch=True), st.text(max_size=8), max_size=4))
def test_any_text_is_the_value_of_a_setting_as_it_was_written(settings: dict[str, str]) -> None:
    text = yaml.safe_dump({"name": "x", "connectors": {"c": settings}})
    assert parse_document(text).connectors["c"].values == settings


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", "f.yaml:1:1: A pipeline must be a mapping"),
        ("name: [", "f.yaml:1:8: Not YAML: "),
        (
            "name: x\nconnector: {}",
            "f.yaml:2:1: Unknown part connector: a pipeline has name, settings, connectors; did",
        ),
        ("name: a b\nconnectors: {c: {}}", "f.yaml:1:1: A pipeline needs a name of at most 200 letters"),
        ("name: x\nconnectors: {}", "f.yaml:2:1: A pipeline needs at least one connector"),
        ("name: x\nconnectors:\n  c:\n    a: 1\n    a: 2", "f.yaml:5:5: a is given twice"),
        ("name: x\nconnectors:\n  c:\n    a: {b: 1}\n    a.b: 2", "f.yaml:5:5: a.b is given twice; the first is in l"),
        ("name: x\nconnectors:\n  c:\n    a:", "f.yaml:4:7: a has no value; leave it out, or write ''"),
        ("name: x\nconnectors:\n  c:\n    a: ['b,c']", "f.yaml:4:9: An item of a must be a text without a comma"),
        ("name: x\nconnectors:\n  c: &c\n    a: *c", "f.yaml:3:6: Mappings are nested deeper than 20"),
        ("name: x\nconnectors:\n  c: {}", "f.yaml:3:3: Connector c has no connector.class"),
    ],
)
def test_document_that_is_no_pipeline_is_refused_with_the_place(text: str, expected: str) -> None:
    assert problems(text)[0].startswith(expected)


def test_errors_of_settings_name_their_places_and_come_together() -> None:
    text = ORDERS.replace("tasks.max: 2", "tasks.max: many").replace("    topic: a", "    topik: a")
    found = problems(text)
    assert found[0].startswith("f.yaml:10:5: tasks.max: Invalid value many")
    assert found[1].startswith("f.yaml:10:5: tasks.max: Invalid value null")
    assert found[2].startswith('f.yaml:13:3: topic: Missing required configuration "topic"')
    assert found[3] == "f.yaml:16:5: topik: Unknown configuration topik; did you mean topic?"


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("group.id: x", "f.yaml:3:3: group.id is not a setting of pipelines: it is pipeline-NAME"),
        ("listeners: http://x:1", "f.yaml:3:3: listeners is not a setting of pipelines: a pipeline has no REST API"),
        ("listeners.https.ssl.keystore.location: k", "f.yaml:3:3: listeners.https.ssl.keystore.location is not a set"),
        ("session.timeout.ms: 0", "f.yaml:3:3: "),
        ("sesion.timeout.ms: 1", "f.yaml:3:3: "),
    ],
)
def test_settings_of_the_worker_are_checked(line: str, expected: str) -> None:
    assert problems(ORDERS.replace("bootstrap.servers: node:9094", line))[0].startswith(expected)


def test_explanation_has_steps_progress_and_effective_settings_without_secrets() -> None:
    text = explanation(planned(), once=True)
    found = yaml.safe_load(text)
    assert found["stages"] == [["in"], ["out"]]
    out = found["connectors"]["out"]
    assert out["progress"] == "group connect-out, checkpoint below connect-checkpoints/pipeline-orders"
    assert out["steps"][0] == "read topics: a,b"
    assert out["steps"][-2:] == [
        "transform route: RegexRouter",
        "put: org.apache.kafka.connect.file.FileStreamSinkConnector",
    ]
    assert out["settings"]["errors.tolerance"] == "none"
    assert out["settings"]["value.converter"].endswith("StringConverter")
    assert found["connectors"]["in"]["progress"] == "topic pipeline-orders-offsets"
    assert "s3cret" not in text


def test_command_explains_a_file_and_refuses_one_with_errors(tmp_path: Path) -> None:
    file = tmp_path / "orders.yaml"
    file.write_text(ORDERS)
    answer = CliRunner().invoke(app, ["pipeline", "run", str(file), "--explain", "--override", "spark.master=local[2]"])
    assert answer.exit_code == 0
    found = yaml.safe_load(answer.stdout)
    assert found["stages"] == [["out", "in"]]
    assert found["settings"]["spark.master"] == "local[2]"
    file.write_text(ORDERS.replace("FileStreamSink", "Nothing"))
    answer = CliRunner().invoke(app, ["pipeline", "run", str(file), "--explain"])
    assert answer.exit_code == 2
    assert f"{file.name}:7:5: Failed to find any class" in answer.output.replace("\n", "")


class Pipeline:
    """A runner that leads, over queries in memory."""

    def __init__(self, *, once: bool) -> None:
        self.queries = MemoryQueries()
        self.lines: list[str] = []
        self.runner = PipelineRunner(planned(), self.queries, self.lines.append, once=once)
        self.runner.lead(1)
        self.runner.step()

    def end(self, name: str) -> None:
        self.queries.stop(StopConnector(name, self.queries.running[name]))
        self.runner.step()


def test_sinks_start_once_the_sources_have_ended_and_the_pipeline_is_complete_then() -> None:
    pipeline = Pipeline(once=True)
    assert [*pipeline.queries.running] == ["in"]
    pipeline.end("in")
    assert [*pipeline.queries.running] == ["out"]
    assert not pipeline.runner.has_ended
    pipeline.end("out")
    assert pipeline.runner.is_complete
    assert pipeline.lines == ["in: running", "in: ended", "out: running", "out: ended"]


def test_connectors_run_together_and_the_first_failure_ends_the_pipeline() -> None:
    pipeline = Pipeline(once=False)
    assert sorted(pipeline.queries.running) == ["in", "out"]
    pipeline.queries.fail("in", "OSError: gone")
    pipeline.queries.fail("out", "OSError: later")
    pipeline.runner.step()
    assert pipeline.runner.failure == "connector in has failed: OSError: gone"
    assert pipeline.runner.has_ended


def test_pipeline_that_loses_the_lead_begins_with_the_first_stage_when_it_leads_again() -> None:
    pipeline = Pipeline(once=True)
    pipeline.end("in")
    pipeline.runner.resign()
    assert not pipeline.runner.leads
    assert not pipeline.queries.running
    pipeline.runner.step()
    assert not pipeline.queries.running
    pipeline.runner.lead(2)
    pipeline.runner.step()
    assert [*pipeline.queries.running] == ["in"]
