"""The commands about Spark's sinks."""
