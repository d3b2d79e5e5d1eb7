"""The workload spark: a streaming query of Spark copies topics while it and the cluster are under faults."""

from tidelog_chaos.workload.spark.copy_query import CopyQuery
from tidelog_chaos.workload.spark.workload import SparkWorkload

__all__ = ["CopyQuery", "SparkWorkload"]
