"""Spark finds the source by its module name, and a missing dependency never breaks Spark's discovery."""

from __future__ import annotations

import subprocess
import sys

import pytest


def run_python(code: str) -> str:
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60)
    return done.stdout.strip()


@pytest.mark.costly
def test_discovery_module_exposes_the_source() -> None:
    assert run_python("import pyspark_tidelog; print(pyspark_tidelog.DefaultSource.name())") == "tidelog"


@pytest.mark.costly
def test_discovery_module_imports_without_pyspark() -> None:
    code = "import sys; sys.modules['pyspark'] = None; import pyspark_tidelog as m; print(hasattr(m, 'DefaultSource'))"
    assert run_python(code) == "False"


@pytest.mark.costly
def test_discovery_loads_neither_arrow_nor_grpc_nor_clients() -> None:
    """Spark starts several processes for a query that only look the data source up."""
    unwanted = {"pyarrow", "grpc", "tidelog.cluster", "tidelog_spark.sink.writer", "tidelog_spark.source.reader"}
    assert run_python(f"import sys, pyspark_tidelog; print({unwanted} & set(sys.modules))") == "set()"
