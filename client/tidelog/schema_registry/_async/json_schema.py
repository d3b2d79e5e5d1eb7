"""asyncio's serializers of JSON Schema."""

from tidelog.schema_registry.json_schema import AsyncJSONDeserializer, AsyncJSONSerializer

__all__ = ["AsyncJSONDeserializer", "AsyncJSONSerializer"]
