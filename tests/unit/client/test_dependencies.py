"""The SDK alone installs little and loads quickly; the command line says what it needs."""

from __future__ import annotations

import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

pytestmark = pytest.mark.costly
ROOT = Path(__file__).parents[3]
CLI = ("hdrh", "rich", "tomlkit", "typer")

_WITHOUT = """
import importlib.abc, sys

class Missing(importlib.abc.MetaPathFinder):
    def find_spec(self, name, path, target=None):
        if name.partition(".")[0] in {missing!r}:
            raise ModuleNotFoundError(f"No module named {{name!r}}", name=name)

sys.meta_path.insert(0, Missing())
sys.argv = ["tidelog", "topic", "list"]
"""


def run(code: str, missing: tuple[str, ...]) -> subprocess.CompletedProcess[str]:
    program = _WITHOUT.format(missing=missing) + code
    return subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60)


def test_the_sdk_needs_grpc_protobuf_and_at_most_four_packages() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    names = {requirement.partition(">")[0] for requirement in project["dependencies"]}
    assert {"grpcio", "protobuf"} <= names
    assert len(names - {"grpcio", "protobuf"}) <= 4
    assert "tidelog[cli" in project["optional-dependencies"]["all"][0]


def test_clients_work_without_the_packages_of_the_extras() -> None:
    missing = (*CLI, "pyarrow", "pyspark", "numpy", "pandas", "rocksdict", "xxhash", "javaproperties")
    code = "import tidelog\nfor name in tidelog.__all__: getattr(tidelog, name)\nimport tidelog.testing"
    assert run(code, missing).stderr == ""


def test_importing_tidelog_loads_neither_grpc_nor_arrow() -> None:
    code = "import tidelog\nassert not {'grpc', 'pyarrow', 'google', 'asyncio'} & set(sys.modules)"
    assert run(code, ()).stderr == ""


def test_a_client_does_not_load_the_others() -> None:
    for name, others in (
        ("Producer", {"tidelog.admin", "tidelog.consumer"}),
        ("Consumer", {"tidelog.admin", "tidelog.producer"}),
        ("AdminClient", {"tidelog.producer", "tidelog.consumer.consumer"}),
    ):
        code = f"from tidelog import {name}\nloaded = {others!r} & set(sys.modules)\nassert not loaded, loaded"
        assert run(code, ()).stderr == ""


def test_schema_registries_name_the_extra_that_they_need() -> None:
    for module in ("schema_registry", "schema_registry.avro", "schema_registry.json_schema", "avro"):
        result = run(f"import tidelog.{module}", ("confluent_kafka",))
        assert result.stderr.strip().endswith("needs confluent_kafka: install tidelog[schema-registry]")


def test_the_first_arrow_table_does_not_wait_for_pandas() -> None:
    code = """
from tidelog.consumer.columns import decode_rows
from tidelog.consumer.core.events import Deliver
from tidelog_foundation.records import RecordBatchBuilder
builder = RecordBatchBuilder()
builder.append(b"k", b"v", (), 1)
rows = decode_rows(Deliver("t", 3, 1, 0, builder.build()), 0)
assert (rows.column("topic")[0].as_py(), rows.column("partition")[0].as_py()) == ("t", 3)
assert not {"pandas", "pyarrow.compute"} & set(sys.modules)
"""
    assert run(code, ()).stderr == ""


def test_the_command_says_what_to_install() -> None:
    ended = run("from tidelog_cli.main import main\nmain()", ("typer",))
    assert ended.returncode == 1
    assert ended.stderr.strip() == "tidelog: error: typer is not installed: pip install 'tidelog[cli]'"
