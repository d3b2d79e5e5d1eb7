"""A program with a Spark session of its own: ``python spark_formats.py FORMAT [JAR] [VERSION]``.

It decodes and encodes records of one format and prints the results as JSON. A Spark session has the packages that its
JVM has started with, so the tests run this in a new process. The format comes from the jar, or else from a download of
the version.
"""

from __future__ import annotations

import json
import sys
from typing import Any

from google.protobuf.descriptor_pb2 import FieldDescriptorProto, FileDescriptorProto, FileDescriptorSet

import tidelog.spark
from tidelog.spark import Avro, Protobuf, Registered, schema_id

V1 = '{"type":"record","name":"flight","fields":[{"name":"carrier","type":"string"}]}'
V2 = (
    '{"type":"record","name":"flight","fields":[{"name":"carrier","type":"string"},'
    '{"name":"delay","type":["int","null"],"default":0}]}'
)
FLIGHT = "named_struct('carrier', 'UA', 'delay', 4)"


def main(format_name: str, jar: str, version: str) -> None:
    packages = {} if not version else {"spark.jars.packages": f"org.apache.spark:spark-{format_name}_2.13:{version}"}
    spark = tidelog.spark.session("formats", config=packages, formats=[jar or format_name])
    print(json.dumps({"avro": of_avro, "protobuf": of_protobuf}[format_name](spark)))
    spark.stop()


def of_avro(spark: Any) -> dict[str, Any]:
    flight = spark.sql(f"SELECT {FLIGHT} AS new, named_struct('carrier', 'DL') AS old UNION ALL SELECT NULL, NULL")
    by_id = {1: V1, 2: V2}
    old, new = (Registered(Avro(schema), by_id, write_id=id_) for id_, schema in by_id.items())
    framed = flight.select(old.encode("old").alias("value")).union(flight.select(new.encode("new").alias("value")))
    broken = spark.createDataFrame([(b"\xff\xff\xff",), (None,)], "value BINARY")
    return {
        "plain": rows(flight.select(Avro(V2).encode("new").alias("v")).select("v", Avro(V2).decode("v"))),
        "evolved": rows(flight.select(Avro(V1, reader_schema=V2).decode(Avro(V1).encode("old")))),
        "by id": rows(framed.select(schema_id("value"), new.decode("value"))),
        "unknown id": failure(framed.select(Registered(Avro(V2), {2: V2}).decode("value"))),
        "permissive": rows(broken.select(Avro(V2, mode="PERMISSIVE").decode("value"))),
        "fail fast": failure(broken.select(Avro(V2).decode("value"))),
    }


def of_protobuf(spark: Any) -> dict[str, Any]:
    flight = spark.sql(f"SELECT {FLIGHT} AS flight UNION ALL SELECT NULL")
    plain, framed = Protobuf("Flight", descriptor()), Registered(Protobuf("Flight", descriptor()), write_id=7)
    broken = spark.createDataFrame([(b"\xff\xff\xff",), (None,)], "value BINARY")
    return {
        "plain": rows(flight.select(plain.encode("flight").alias("v")).select("v", plain.decode("v"))),
        "by id": rows(
            flight.select(framed.encode("flight").alias("v")).select("v", schema_id("v"), framed.decode("v"))
        ),
        "permissive": rows(broken.select(Protobuf("Flight", descriptor(), mode="PERMISSIVE").decode("value"))),
        "fail fast": failure(broken.select(plain.decode("value"))),
    }


def descriptor() -> bytes:
    file = FileDescriptorProto(name="flight.proto", package="demo", syntax="proto3")
    message = file.message_type.add(name="Flight")
    message.field.add(name="carrier", number=1, type=FieldDescriptorProto.TYPE_STRING)
    message.field.add(name="delay", number=2, type=FieldDescriptorProto.TYPE_INT32)
    return FileDescriptorSet(file=[file]).SerializeToString()


def rows(frame: Any) -> list[Any]:
    return [
        [value.hex() if isinstance(value, bytearray | bytes) else value for value in row] for row in frame.collect()
    ]


def failure(frame: Any) -> str:
    try:
        frame.collect()
    except Exception as error:  # noqa: BLE001  # its text is the result
        return str(error)
    return "no error"


if __name__ == "__main__":
    main(*[*sys.argv[1:], "", ""][:3])
