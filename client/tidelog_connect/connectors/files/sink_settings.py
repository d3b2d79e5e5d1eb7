"""The settings of FilesSink, named as those of the S3 and HDFS connectors."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any
from zoneinfo import available_timezones

from tidelog_connect.configuration import (
    NO_DEFAULT_VALUE,
    ConfigDef,
    ConfigException,
    Importance,
    Range,
    Type,
    ValidString,
)
from tidelog_connect.connectors.files.formats import FORMATS, ICEBERG, format_name
from tidelog_connect.connectors.files.path_format import PATHS, date_folders, path_format_of

DEFAULT, FIELD, TIME = "DefaultPartitioner", "FieldPartitioner", "TimeBasedPartitioner"
PARTITIONERS = (DEFAULT, FIELD, TIME, *PATHS)
EXTRACTORS = ("Wallclock", "Record", "RecordField")
_PARTITIONING = "Partitioner"
_ICEBERG = "Iceberg"
_HIGH, _MEDIUM, _LOW = Importance.HIGH, Importance.MEDIUM, Importance.LOW


def sink_settings() -> ConfigDef:
    """Return the settings of FilesSink."""
    found = (
        ConfigDef()
        .define(
            "path",
            Type.STRING,
            "",
            _HIGH,
            "The folder to write: a path, or a URI that Spark can write, such as s3a://bucket/topics. Each topic has a"
            " folder in it. Required without iceberg.catalog.",
        )
        .define(
            "format.class",
            Type.STRING,
            NO_DEFAULT_VALUE,
            _HIGH,
            f"The format of the files: {', '.join(FORMATS)}.",
            validator=_format,
        )
        .define(
            "flush.size",
            Type.INT,
            "100000",
            _HIGH,
            "The maximum number of records in a file. A batch begins when the topics have so many new records.",
            validator=Range(1),
        )
        .define(
            "rotate.interval.ms",
            Type.LONG,
            "60000",
            _HIGH,
            "The time after which a batch begins with fewer records than flush.size.",
            validator=Range(1),
        )
        .define(
            "behavior.on.null.values",
            Type.STRING,
            "fail",
            _LOW,
            "A record without a value: fail, or ignore.",
            validator=ValidString(("fail", "ignore")),
        )
    )
    _define_partitioner(found)
    _define_iceberg(found)
    return found


def partitioner_of(settings: Mapping[str, Any]) -> str:
    """Return the name of the partitioner, without its package."""
    return str(settings["partitioner.class"]).rpartition(".")[2]


def check(settings: Mapping[str, Any]) -> dict[str, str]:
    """Return the errors of settings that do not fit each other, by their names."""
    partitioner = partitioner_of(settings)
    name = format_name(settings["format.class"])
    errors = _place_errors(settings, name)
    if errors:
        return errors
    if partitioner == FIELD and not settings["partition.field.name"]:
        return {"partition.field.name": f"{FIELD} requires partition.field.name"}
    if partitioner in (DEFAULT, FIELD):
        return {}
    if FORMATS[name].source == ICEBERG and partitioner in PATHS:
        if settings["timestamp.extractor"] != "RecordField":
            return {"timestamp.extractor": f"{name} is divided by a field, so {partitioner} requires RecordField"}
    elif FORMATS[name].is_table:
        also = ", or DailyPartitioner and HourlyPartitioner by a field" if FORMATS[name].source == ICEBERG else ""
        return {"partitioner.class": f"{name} takes {DEFAULT}, which means no partitions here, or {FIELD}{also}"}
    if partitioner == TIME and not settings["path.format"]:
        return {"path.format": f"{TIME} requires path.format"}
    if settings["timestamp.extractor"] == "RecordField" and not settings["timestamp.field"]:
        return {"timestamp.field": "RecordField requires timestamp.field"}
    try:
        date_folders(path_format_of(partitioner, settings["path.format"]))
    except ConfigException as error:
        return {"path.format": str(error)}
    return {}


def _place_errors(settings: Mapping[str, Any], name: str) -> dict[str, str]:
    """Return the errors of what says where files or tables are."""
    catalog, namespace = settings["iceberg.catalog"], settings["iceberg.namespace"]
    if not catalog:
        if namespace:
            return {"iceberg.namespace": "iceberg.namespace requires iceberg.catalog"}
        return {} if settings["path"] else {"path": "path is required without iceberg.catalog"}
    if FORMATS[name].source != ICEBERG:
        return {"iceberg.catalog": f"iceberg.catalog is for IcebergFormat, and the format is {name}"}
    return {"path": "The catalog has the place of tables: remove path"} if settings["path"] else {}


def _define_iceberg(found: ConfigDef) -> None:
    found.define(
        "iceberg.catalog",
        Type.STRING,
        "",
        _MEDIUM,
        "The catalog of IcebergFormat's tables, which the worker's settings spark.sql.catalog.NAME.* describe. Without"
        " it, tables are folders in path.",
        group=_ICEBERG,
    )
    found.define(
        "iceberg.namespace",
        Type.STRING,
        "",
        _MEDIUM,
        "The namespace of the tables in iceberg.catalog, such as lake or lake.raw. A table has the name of its topic.",
        group=_ICEBERG,
    )


def _define_partitioner(found: ConfigDef) -> None:
    found.define(
        "partitioner.class",
        Type.STRING,
        DEFAULT,
        _HIGH,
        "The folders in that of a topic: partition=N, by fields, or by time.",
        validator=_partitioner,
        group=_PARTITIONING,
    )
    found.define(
        "partition.field.name",
        Type.LIST,
        "",
        _MEDIUM,
        "The fields of FieldPartitioner, whose folders are FIELD=VALUE.",
        group=_PARTITIONING,
    )
    found.define(
        "path.format",
        Type.STRING,
        "",
        _MEDIUM,
        "The folders of TimeBasedPartitioner, such as 'year'=YYYY/'month'=MM/'day'=dd.",
        group=_PARTITIONING,
    )
    found.define(
        "partition.duration.ms",
        Type.LONG,
        "-1",
        _MEDIUM,
        "The duration to which TimeBasedPartitioner rounds times down; -1 for none.",
        validator=Range(-1),
        group=_PARTITIONING,
    )
    found.define(
        "timezone",
        Type.STRING,
        "UTC",
        _MEDIUM,
        "The time zone of folders named by time.",
        validator=_zone,
        group=_PARTITIONING,
    )
    found.define(
        "timestamp.extractor",
        Type.STRING,
        EXTRACTORS[0],
        _MEDIUM,
        "The time of a record for its folder: that of its batch, its own, or the field timestamp.field.",
        validator=ValidString(EXTRACTORS),
        group=_PARTITIONING,
    )
    found.define(
        "timestamp.field",
        Type.STRING,
        "",
        _MEDIUM,
        "The field of RecordField: a timestamp, a date, milliseconds since 1970, or a text in ISO 8601.",
        group=_PARTITIONING,
    )


def _format(name: str, value: object) -> None:
    if value is not None:
        format_name(str(value))


def _partitioner(name: str, value: object) -> None:
    if str(value).rpartition(".")[2] not in PARTITIONERS:
        raise ConfigException.of(name, value, f"String must be one of: {', '.join(PARTITIONERS)}")


def _zone(name: str, value: object) -> None:
    if value not in available_timezones():
        raise ConfigException.of(name, value, "Must be a time zone such as UTC or Europe/Berlin")
