"""Spark settings for a JVM that runs for a minute, when compiling rarely used code costs more than it saves."""

from __future__ import annotations

from pathlib import Path

_OPTIONS = (
    "-XX:TieredStopAtLevel=1",
    "-XX:+UseSerialGC",
    # Java verifies each class of Spark's jars whenever it loads it: a quarter of the processor time of a start.
    "-XX:+UnlockDiagnosticVMOptions",
    "-XX:-BytecodeVerificationRemote",
)
QUICK_JVM = {"spark.driver.defaultJavaOptions": " ".join(_OPTIONS)}
"""Using only the first of its two compilers and no collector threads halves the processor time."""


def write_spark_defaults(folder: Path) -> Path:
    """Write the settings as the defaults of a folder for SPARK_CONF_DIR, for a program that chooses none itself."""
    folder.mkdir()
    (folder / "spark-defaults.conf").write_text("".join(f"{key} {value}\n" for key, value in QUICK_JVM.items()))
    return folder
