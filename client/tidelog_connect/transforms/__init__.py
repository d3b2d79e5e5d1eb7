"""Kafka Connect's transforms, as column expressions of Spark.

A transform is made of its settings alone, before the first record: it takes `Records` and returns them with other
columns and schemas. `registry` has all of them, `chain` those of a connector.
"""
