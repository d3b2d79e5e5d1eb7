"""JSON Schema serializers for asyncio."""

from tidelog.schema_registry.json_schema import AsyncJSONDeserializer, AsyncJSONSerializer

__all__ = ["AsyncJSONDeserializer", "AsyncJSONSerializer"]
