"""Checks of Protobuf's descriptors. Pure, and without Spark."""

from __future__ import annotations

from google.protobuf.descriptor_pb2 import FileDescriptorSet
from google.protobuf.message import DecodeError

from tidelog_foundation.errors import ConfigError


def check_message(source: str, data: bytes, message: str) -> None:
    """Check that a FileDescriptorSet has a message that is not nested in another one.

    Raises:
        ConfigError: the bytes are no FileDescriptorSet, or it has no such message; the text names ``source``.
    """
    try:
        files = FileDescriptorSet.FromString(data).file
    except DecodeError as error:
        raise ConfigError(f"{source} is not a FileDescriptorSet, as protoc --descriptor_set_out writes") from error
    messages = [(file.package, found.name) for file in files for found in file.message_type]
    names = sorted(f"{package}.{name}".lstrip(".") for package, name in messages)
    if message not in {*names, *(name for _, name in messages)}:
        raise ConfigError(f"{source} has no message {message!r}; it has {', '.join(names) or 'none'}")
