"""Avro serializers for asyncio."""

from tidelog.schema_registry.avro import AsyncAvroDeserializer, AsyncAvroSerializer

__all__ = ["AsyncAvroDeserializer", "AsyncAvroSerializer"]
