"""Codecs of the requests and responses of groups."""

from __future__ import annotations

from typing import Any, TypeVar

from tidelog.v1 import group_service_pb2
from tidelog_foundation.transport.message_codec import MessageCodec

Q = TypeVar("Q")


def codec_of(kind: type[Q]) -> MessageCodec[Q, Any]:
    """Return the codec between a request or response and the message of the same name."""
    return MessageCodec(kind, getattr(group_service_pb2, kind.__name__))
