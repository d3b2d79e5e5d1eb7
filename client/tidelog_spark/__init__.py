"""The Spark data source ``format("tidelog")``, and a local session that finds its own Java.

Needs ``pip install tidelog[spark]`` and Java 17 or newer.
"""

from tidelog_spark.session import spark_session
from tidelog_spark.source import TidelogDataSource

__all__ = ["TidelogDataSource", "spark_session"]
