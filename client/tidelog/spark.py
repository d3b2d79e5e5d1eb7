"""Tidelog in Spark: the data source ``format("tidelog")``, and sessions that know it.

Requires ``pip install tidelog[spark]``.
"""

from tidelog_spark import TidelogDataSource, register, session

__all__ = ["TidelogDataSource", "register", "session"]
