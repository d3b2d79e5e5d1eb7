"""Kafka Connect's connectors, transforms and converters as queries of Spark Structured Streaming.

``configuration`` defines settings and reports their errors as Connect does (pure). The package imports nothing, so that
configurations can be validated without Spark.
"""
