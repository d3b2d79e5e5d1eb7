"""The Spark data source ``format("tidelog")``, whose public name is `tidelog.spark`.

The package itself imports nothing: the operator's view of the sinks' journal works without Spark.
"""
