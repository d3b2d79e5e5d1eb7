"""Lets Spark find `format("tidelog")` by itself: `pyspark_*` modules are looked up for `DefaultSource`."""
