"""Protobuf serializers for asyncio."""

from tidelog.schema_registry.protobuf import AsyncProtobufDeserializer, AsyncProtobufSerializer

__all__ = ["AsyncProtobufDeserializer", "AsyncProtobufSerializer"]
