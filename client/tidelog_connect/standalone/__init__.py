"""Pipelines: connectors of a file, which run without a REST API."""
