"""The packages of Spark that formats need: names for the installed Spark, settings, and the check of a session."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType

import pyspark
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession
from pyspark.sql.avro.functions import from_avro
from pyspark.sql.functions import lit
from pyspark.sql.protobuf.functions import from_protobuf

from tidelog_foundation.errors import ConfigError

PACKAGES = MappingProxyType({"avro": "spark-avro", "protobuf": "spark-protobuf"})
"""The package of each format that is not part of Spark itself."""

FORMATS = ("json", *PACKAGES)

_JARS = "spark.jars"
_DOWNLOADS = "spark.jars.packages"
_SCALA = re.compile(r"scala-library-(\d+\.\d+)\..*\.jar")
_NOT_LOADED = "_NOT_LOADED_SQL_FUNCTIONS_UNUSABLE"


@dataclass(frozen=True, slots=True)
class InstalledSpark:
    """The Spark that a new session starts: its version, its Scala version, and the names of its jars."""

    version: str
    scala: str
    jars: tuple[str, ...]

    def coordinate(self, format_name: str) -> str:
        """Return the Maven coordinate of a format's package."""
        return f"org.apache.spark:{PACKAGES[format_name]}_{self.scala}:{self.version}"


def installed_spark() -> InstalledSpark:
    """Return the Spark inside the installed PySpark."""
    jars = sorted(path.name for path in Path(pyspark.__file__).with_name("jars").glob("*.jar"))
    scala = next((found[1] for name in jars if (found := _SCALA.fullmatch(name))), "2.13")
    return InstalledSpark(pyspark.__version__, scala, tuple(jars))


def add_packages(formats: Sequence[str], settings: Mapping[str, str], spark: InstalledSpark) -> dict[str, str]:
    """Return settings by which a new session has the packages of formats.

    A format is ``json``, ``avro``, ``protobuf``, or the path of a package's jar. Spark downloads packages from Maven
    Central, except for those that it has, or that the settings name already.

    Raises:
        ConfigError: a format is not known, or a jar does not exist or is of another package.
    """
    jars = [str(_checked_jar(name)) for name in formats if name.endswith(".jar")]
    present = [*spark.jars, *_names(settings, _JARS), *_names(settings, _DOWNLOADS), *jars]
    wanted = [name for name in _checked_names(formats) if not _has_package(present, name)]
    added = {_JARS: jars, _DOWNLOADS: [spark.coordinate(name) for name in wanted]}
    return {
        **settings,
        **{key: ",".join([*_names(settings, key), *values]) for key, values in added.items() if values},
    }


def require_formats(spark: SparkSession, formats: Sequence[str]) -> None:
    """Check that a running session has the packages of formats.

    Raises:
        ConfigError: a format is not known, or its package is not in the session. The message has its coordinate.
    """
    named = [format_of_jar(Path(name)) for name in formats if name.endswith(".jar")]
    for name in dict.fromkeys((*named, *_checked_names(formats))):
        if _is_missing(spark, name):
            package = InstalledSpark(spark.version, installed_spark().scala, ()).coordinate(name)
            raise ConfigError(
                f"this Spark session lacks {PACKAGES[name]}, the package of the format {name}, and a running session"
                f" cannot load it. Pass formats=[{name!r}] to the first tidelog.spark.session() of the program, or"
                f" start Spark with --packages {package}"
            )


def format_of_jar(jar: Path) -> str:
    """Return the format whose package a jar is.

    Raises:
        ConfigError: it is none.
    """
    for name, package in PACKAGES.items():
        if jar.name.startswith(f"{package}_"):
            return name
    raise ConfigError(f"{jar} is not a jar of {' or '.join(PACKAGES.values())}")


def _checked_names(formats: Sequence[str]) -> list[str]:
    """Return the formats that need a package, without the jars."""
    names = [name for name in formats if not name.endswith(".jar")]
    for name in names:
        if name not in FORMATS:
            raise ConfigError(f"format {name!r} is not one of {', '.join(FORMATS)}, or the path of a jar")
    return [name for name in names if name in PACKAGES]


def _checked_jar(name: str) -> Path:
    jar = Path(name)
    format_of_jar(jar)
    if not jar.is_file():
        raise ConfigError(f"there is no file {jar}")
    return jar


def _names(settings: Mapping[str, str], key: str) -> list[str]:
    return [name.strip() for name in settings.get(key, "").split(",") if name.strip()]


def _has_package(present: Sequence[str], format_name: str) -> bool:
    """Tell whether a jar's path or a coordinate among those present is of a format's package."""
    start = re.compile(rf"(^|[/\\:]){PACKAGES[format_name]}_[^/\\]*$")
    return any(start.search(name) for name in present)


def _is_missing(spark: SparkSession, format_name: str) -> bool:
    # Spark resolves the functions when it analyzes the query. Other errors mean that the package is there.
    empty = lit(b"")
    call = from_avro(empty, '"string"') if format_name == "avro" else from_protobuf(empty, "M", binaryDescriptorSet=b"")
    try:
        _ = spark.range(1).select(call).schema
    except PySparkException as error:
        return (error.getCondition() or "").endswith(_NOT_LOADED)
    return False
