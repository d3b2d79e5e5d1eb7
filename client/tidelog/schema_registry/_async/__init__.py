"""confluent-kafka's modules of serializers for asyncio; :mod:`tidelog.schema_registry` has all of their names."""
