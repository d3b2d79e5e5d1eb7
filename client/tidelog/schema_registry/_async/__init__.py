"""confluent-kafka's names of the modules of asyncio's serializers; :mod:`tidelog.schema_registry` has all of them."""
