"""Errors of schemas and of the data that they describe."""

from __future__ import annotations

from tidelog_foundation.errors import ConfigError


class DataException(ConfigError):
    """A schema that is not valid, or that Spark's types cannot hold (``org.apache.kafka.connect.errors``)."""
