"""The bytes of Kafka's protocol without I/O: primitive types, messages by version, headers."""
