"""asyncio's serializers of Avro."""

from tidelog.schema_registry.avro import AsyncAvroDeserializer, AsyncAvroSerializer

__all__ = ["AsyncAvroDeserializer", "AsyncAvroSerializer"]
