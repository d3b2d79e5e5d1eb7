"""Lets Spark find `format("tidelog")` by itself: `pyspark_*` modules are looked up for `DefaultSource`."""

__all__: list[str] = []

try:
    from tidelog_spark.data_source import TidelogDataSource as DefaultSource
except ImportError:
    # Spark gives up all discovery when one such module fails to import.
    pass
else:
    __all__ += ["DefaultSource"]
