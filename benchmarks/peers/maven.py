"""The location of the jars of Apache Kafka, an installation in ``KAFKA_HOME`` or fetched once by Maven, and of Spark's
Kafka source.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path

_HERE = Path(__file__).parent
_POM = _HERE / "pom.xml"
_REPOSITORY = _HERE.parent.parent
_BUILD = _REPOSITORY / "build" / "peers"
_SPARK_POM = _REPOSITORY / "tests" / "compat" / "java" / "spark" / "pom.xml"
_MIRROR_POM = _HERE / "mirror" / "pom.xml"
_SERVER_JAR = re.compile(r"kafka_2\.13-(\d+\.\d+\.\d+)\.jar")


@dataclass(frozen=True, slots=True)
class Installation:
    """Kafka's version, and the folder with its jars and their dependencies."""

    version: str
    libs: Path


def find_installation() -> Installation:
    """Return the installation in ``KAFKA_HOME``, or the one in ``build/peers``, which Maven fetches if missing.

    Raises:
        FileNotFoundError: ``KAFKA_HOME`` has no ``libs/kafka_2.13-<version>.jar``, or Maven is not installed.
        subprocess.CalledProcessError: Maven failed.
    """
    home = os.environ.get("KAFKA_HOME")
    libs = Path(home) / "libs" if home else _BUILD / f"kafka-{pom_version(_POM.read_text())}" / "libs"
    if not home and not libs.exists():
        _fetch(_POM, libs)
    return Installation(version_of([path.name for path in libs.glob("*.jar")], libs), libs)


def fetch_spark_jars() -> list[Path]:
    """Return the jars of Spark's Kafka source, which Maven fetches if they are missing.

    Their version is that of PySpark, or the one in the pom if that one has not been published.

    Raises:
        FileNotFoundError: Maven is not installed.
        subprocess.CalledProcessError: Maven failed.
    """
    installed = version("pyspark")
    libs, other = _BUILD / f"spark-{installed}", _BUILD / "spark-of-the-pom"
    if not libs.exists() and not other.exists():
        try:
            _fetch(_SPARK_POM, libs, f"-Dspark.version={installed}")
        except subprocess.CalledProcessError:
            _fetch(_SPARK_POM, other)
    return sorted((libs if libs.exists() else other).glob("*.jar"))


def fetch_mirror_jars() -> Path:
    """Return the folder with MirrorMaker 2, Kafka Connect and their dependencies, which Maven fetches if needed.

    Raises:
        FileNotFoundError: Maven is not installed.
        subprocess.CalledProcessError: Maven failed.
    """
    libs = _BUILD / f"mirror-{pom_version(_MIRROR_POM.read_text())}"
    if not any(libs.glob("connect-file-*.jar")):
        # Those of an earlier pom.xml.
        shutil.rmtree(libs, ignore_errors=True)
        _fetch(_MIRROR_POM, libs)
    return libs


def pom_version(pom: str) -> str:
    """Return the version of Kafka in the text of a pom.xml."""
    found = re.search(r"<kafka\.version>(.+?)</kafka\.version>", pom)
    assert found is not None, "pom.xml has no kafka.version"
    return found[1]


def version_of(names: list[str], libs: Path) -> str:
    """Return the version of the server's jar among the files of ``libs``.

    Raises:
        FileNotFoundError: There is no such jar.
    """
    versions = [match[1] for name in names if (match := _SERVER_JAR.fullmatch(name))]
    if not versions:
        raise FileNotFoundError(f"{libs} has no kafka_2.13-<version>.jar; KAFKA_HOME names Kafka's own folder")
    return versions[0]


def _fetch(pom: Path, libs: Path, *properties: str) -> None:
    maven = shutil.which("mvn")
    if maven is None:
        raise FileNotFoundError("there is no mvn on the PATH; set KAFKA_HOME to an installation of Apache Kafka 4")
    partial = libs.with_name(f"{libs.name}.partial")
    options = [f"-DoutputDirectory={partial}", "-DincludeScope=runtime", *properties]
    subprocess.run([maven, "-B", "-q", "-f", pom, "dependency:copy-dependencies", *options], check=True)
    partial.rename(libs)
