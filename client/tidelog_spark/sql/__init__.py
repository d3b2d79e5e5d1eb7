"""SQL over topics: streams, tables and persistent queries, which Spark runs."""
