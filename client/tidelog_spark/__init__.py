"""The Spark data source ``format("tidelog")``, and sessions that know it.

Needs ``pip install tidelog[spark]``.
"""

from tidelog_spark.local_session import register, session
from tidelog_spark.source import TidelogDataSource

__all__ = ["TidelogDataSource", "register", "session"]
