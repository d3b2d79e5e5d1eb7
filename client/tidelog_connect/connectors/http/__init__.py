"""HttpSink: records as requests to an HTTP API."""
