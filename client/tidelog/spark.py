"""Tidelog's Spark source: ``format("tidelog")``, and a local session that finds its Java.

Requires ``pip install tidelog[spark]`` and Java 17 or newer.
"""

from tidelog_spark import TidelogDataSource, spark_session

__all__ = ["TidelogDataSource", "spark_session"]
