"""Lets Spark find `format("tidelog")` by itself: `pyspark_*` modules are looked up for `DefaultSource`."""

__all__: list[str] = []

try:
    from tidelog_spark.source import TidelogDataSource as DefaultSource
except ImportError:
    # Spark gives up all discovery when one such module fails to import, and pyarrow may be missing.
    pass
else:
    __all__ += ["DefaultSource"]
