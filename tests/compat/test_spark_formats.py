"""Avro and Protobuf in Spark, with the packages that decode and encode them."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from compat.jars import Unavailable, spark_format_jar
from quick_jvm import QUICK_JVM

pytestmark = [pytest.mark.compat, pytest.mark.timeout(300)]

PROGRAM = Path(__file__).with_name("spark_formats.py")


def run(*arguments: str) -> subprocess.CompletedProcess[str]:
    [options] = QUICK_JVM.values()
    environment = {**os.environ, "JDK_JAVA_OPTIONS": options}
    command = [sys.executable, str(PROGRAM), *arguments]
    return subprocess.run(command, env=environment, capture_output=True, text=True, timeout=280, check=False)


@cache
def results(format_name: str) -> dict[str, Any]:
    try:
        jar = spark_format_jar(f"spark-{format_name}")
    except Unavailable as error:
        pytest.skip(str(error))
    done = run(format_name, str(jar))
    assert done.returncode == 0, done.stderr[-3000:]
    printed: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return printed


def test_avro_is_encoded_and_decoded_and_null_stays_null() -> None:
    assert results("avro")["plain"] == [["0455410008", ["UA", 4]], [None, None]]


def test_avro_is_read_by_a_newer_schema() -> None:
    assert results("avro")["evolved"] == [[["DL", 0]], [None]]


def test_avro_of_several_schema_ids_is_read_by_one_schema() -> None:
    assert results("avro")["by id"] == [[1, ["DL", 0]], [None, None], [2, ["UA", 4]], [None, None]]


def test_avro_of_an_unknown_schema_id_is_an_error_that_names_it() -> None:
    assert "The record begins with 0x0000000001; known schema ids: 2" in results("avro")["unknown id"]


def test_malformed_avro_is_an_error_or_null_as_in_spark() -> None:
    assert results("avro")["permissive"] == [[[None, None]], [None]]
    assert "Malformed records are detected" in results("avro")["fail fast"]


def test_protobuf_is_encoded_and_decoded_and_null_stays_null() -> None:
    assert results("protobuf")["plain"] == [["0a0255411004", ["UA", 4]], [None, None]]


def test_protobuf_of_a_registry_has_its_header_and_position() -> None:
    assert results("protobuf")["by id"] == [["0000000007000a0255411004", 7, ["UA", 4]], [None, None, None]]


def test_malformed_protobuf_is_an_error_or_null_as_in_spark() -> None:
    assert results("protobuf")["permissive"] == [[None], [None]]
    assert "MALFORMED_PROTOBUF_MESSAGE" in results("protobuf")["fail fast"]


def test_package_that_cannot_be_downloaded_is_an_error_that_names_it() -> None:
    done = run("avro", "", "0.0.0")
    assert done.returncode != 0
    assert "it could not download org.apache.spark:spark-avro_2.13:0.0.0" in done.stderr
