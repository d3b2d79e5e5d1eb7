"""Settings of Spark for a JVM that runs for a minute: compiling what runs once costs more than it saves."""

from __future__ import annotations

QUICK_JVM = {"spark.driver.defaultJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"}
"""With the first of its two compilers alone, and no threads that collect, half the processor time."""
