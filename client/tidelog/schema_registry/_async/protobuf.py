"""asyncio's serializers of Protobuf."""

from tidelog.schema_registry.protobuf import AsyncProtobufDeserializer, AsyncProtobufSerializer

__all__ = ["AsyncProtobufDeserializer", "AsyncProtobufSerializer"]
