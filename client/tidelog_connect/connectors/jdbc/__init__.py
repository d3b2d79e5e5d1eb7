"""The connectors JdbcSource and JdbcSink, with the settings of Confluent's JDBC connector. Databases: PostgreSQL."""

from tidelog_connect.connectors.jdbc.sink import JdbcSinkConnector
from tidelog_connect.connectors.jdbc.source import JdbcSourceConnector

__all__ = ["JdbcSinkConnector", "JdbcSourceConnector"]
