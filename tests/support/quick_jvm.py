"""Spark settings for a JVM that runs for a minute, when compiling rarely used code costs more than it saves."""

from __future__ import annotations

QUICK_JVM = {"spark.driver.defaultJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"}
"""Using only the first of its two compilers and no collector threads halves the processor time."""
