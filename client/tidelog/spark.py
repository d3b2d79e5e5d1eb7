"""Spark reads Tidelog: ``format("tidelog")``, and a local session that finds its Java by itself.

Needs ``pip install tidelog[spark]`` and Java 17 or newer.
"""

from tidelog_spark import TidelogDataSource, spark_session

__all__ = ["TidelogDataSource", "spark_session"]
