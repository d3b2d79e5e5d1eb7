"""Formats without a session: their packages, and errors before Spark sees anything."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from google.protobuf.descriptor_pb2 import FileDescriptorProto, FileDescriptorSet

from tidelog.schema_registry.serde import SchemaId
from tidelog.spark import Avro, Json, Protobuf, Registered
from tidelog_foundation.errors import ConfigError
from tidelog_spark.formats.packages import InstalledSpark, add_packages, installed_spark
from tidelog_spark.formats.registered import message_position, record_header

SPARK = InstalledSpark("4.3.0", "2.13", ("spark-sql_2.13-4.3.0.jar",))
AVRO_SCHEMA = '{"type":"record","name":"r","fields":[{"name":"a","type":"int"}]}'


def descriptor() -> bytes:
    file = FileDescriptorProto(name="f.proto", package="flights")
    file.message_type.add(name="Delay").nested_type.add(name="Inner")
    return FileDescriptorSet(file=[file]).SerializeToString()


class Registry:
    """A registry in memory, with the method of the registry client that formats use."""

    def __init__(self, texts: dict[int, str]) -> None:
        self.texts = texts

    def get_schema(self, schema_id: int) -> Any:
        class Schema:
            schema_str = self.texts[schema_id]

        return Schema()


def test_package_has_the_versions_of_spark_and_its_scala() -> None:
    settings = add_packages(["json", "avro", "protobuf"], {}, SPARK)
    packages = "org.apache.spark:spark-avro_2.13:4.3.0,org.apache.spark:spark-protobuf_2.13:4.3.0"
    assert settings == {"spark.jars.packages": packages}


def test_installed_spark_names_the_scala_of_its_jars() -> None:
    spark = installed_spark()
    assert f"spark-sql_{spark.scala}-{spark.version}.jar" in spark.jars


def test_packages_are_added_to_those_of_the_settings() -> None:
    given = {"spark.jars.packages": "a:b:1", "spark.jars": "/x.jar", "spark.ui.enabled": "false"}
    settings = add_packages(["avro"], given, SPARK)
    assert settings == {**given, "spark.jars.packages": "a:b:1,org.apache.spark:spark-avro_2.13:4.3.0"}


@pytest.mark.parametrize(
    "given",
    [
        {"spark.jars": "/jars/a.jar,/jars/spark-avro_2.13-4.3.0.jar"},
        {"spark.jars.packages": "org.apache.spark:spark-avro_2.13:4.2.1"},
    ],
)
def test_package_that_the_settings_name_is_not_added_again(given: dict[str, str]) -> None:
    assert add_packages(["avro"], given, SPARK) == given


def test_package_among_the_jars_of_spark_is_not_added() -> None:
    assert add_packages(["avro"], {}, InstalledSpark("4.3.0", "2.13", ("spark-avro_2.13-4.3.0.jar",))) == {}


def test_jar_replaces_the_download_of_its_format(tmp_path: Path) -> None:
    jar = tmp_path / "spark-avro_2.13-4.3.0.jar"
    jar.touch()
    assert add_packages(["avro", str(jar)], {}, SPARK) == {"spark.jars": str(jar)}


@pytest.mark.parametrize(
    ("formats", "message"),
    [
        (["xml"], "format 'xml' is not one of json, avro, protobuf"),
        (["/nowhere/spark-avro_2.13-4.3.0.jar"], "there is no file /nowhere/spark-avro_2.13-4.3.0.jar"),
        (["/nowhere/other.jar"], "/nowhere/other.jar is not a jar of spark-avro or spark-protobuf"),
    ],
)
def test_unknown_format_is_refused_by_name(formats: list[str], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        add_packages(formats, {}, SPARK)


def test_mode_that_spark_lacks_is_refused() -> None:
    with pytest.raises(ConfigError, match="'DROPMALFORMED' is not one of PERMISSIVE, FAILFAST"):
        Json("a INT", mode="DROPMALFORMED")  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match="pass mode="):
        Avro(AVRO_SCHEMA, options={"Mode": "FAILFAST"})


def test_schema_in_a_file_that_cannot_be_read_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"cannot read the schema in .*missing.avsc"):
        Avro(tmp_path / "missing.avsc").decode("value")
    (tmp_path / "binary").write_bytes(b"\xff\xfe")
    with pytest.raises(ConfigError, match=r"cannot read the schema in .*binary"):
        Json(tmp_path / "binary").decode("value")


def test_path_of_an_avro_schema_as_text_is_an_error_that_names_the_class_for_paths() -> None:
    with pytest.raises(ConfigError, match=r"'flights.avsc' is not JSON.*pathlib.Path"):
        Avro("flights.avsc").decode("value")


def test_message_that_a_descriptor_lacks_is_an_error_that_lists_its_messages(tmp_path: Path) -> None:
    file = tmp_path / "flights.desc"
    file.write_bytes(descriptor())
    with pytest.raises(ConfigError, match=r"flights.desc has no message 'Inner'; it has flights.Delay"):
        Protobuf("Inner", file).decode("value")
    with pytest.raises(ConfigError, match="is not a FileDescriptorSet"):
        Protobuf("Delay", b"message Delay {}").encode("value")
    with pytest.raises(ConfigError, match=r"cannot read the descriptor .*none.desc"):
        Protobuf("Delay", tmp_path / "none.desc").decode("value")


def test_avro_by_schema_id_needs_the_schemas() -> None:
    avro = Avro(AVRO_SCHEMA)
    with pytest.raises(ConfigError, match="needs the schemas"):
        Registered(avro).decode("value")
    with pytest.raises(ConfigError, match="needs ids"):
        Registered(avro, Registry({1: AVRO_SCHEMA})).decode("value")
    with pytest.raises(ConfigError, match="has no schema 2; it has 1"):
        Registered(avro, {1: AVRO_SCHEMA}, ids=[1, 2]).decode("value")
    with pytest.raises(ConfigError, match="101 schemas are more than 100"):
        Registered(avro, dict.fromkeys(range(101), AVRO_SCHEMA)).decode("value")


def test_schema_id_outside_of_four_bytes_is_refused() -> None:
    with pytest.raises(ConfigError, match="schema id -1 is not within 0 and 2147483647"):
        Registered(Json("a INT"), write_id=-1)
    with pytest.raises(ConfigError, match="needs write_id"):
        Registered(Json("a INT")).encode("value")
    with pytest.raises(ConfigError, match=r"message_index \(\) is not"):
        Registered(Protobuf("Delay", descriptor()), message_index=())


@pytest.mark.parametrize("index", [[0], [1], [0, 0], [2, 300, 1]])
def test_header_of_a_record_has_the_bytes_of_the_registry_serializers(index: list[int]) -> None:
    expected = SchemaId("PROTOBUF", 70_000, message_indexes=index).id_to_bytes()
    assert record_header(70_000) + message_position(index) == expected
