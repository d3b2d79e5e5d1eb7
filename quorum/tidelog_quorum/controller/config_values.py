"""What a change of settings makes of one of them: set, removed, appended to or subtracted from (KIP-339)."""

from __future__ import annotations

from tidelog.config.settings import SettingInfo, format_value
from tidelog.errors import ErrorCode, error_for
from tidelog.v1 import admin_service_pb2 as pb

MAX_VALUE_BYTES = 32_767
"""The longest value, in UTF-8."""

SET = pb.CONFIG_OPERATION_TYPE_SET
DELETE = pb.CONFIG_OPERATION_TYPE_DELETE
APPEND = pb.CONFIG_OPERATION_TYPE_APPEND
SUBTRACT = pb.CONFIG_OPERATION_TYPE_SUBTRACT
_KNOWN = (SET, DELETE, APPEND, SUBTRACT)


def check_value_size(name: str, value: str) -> None:
    """Refuse a value that is too long with INVALID_CONFIG."""
    size = len(value.encode())
    if size > MAX_VALUE_BYTES:
        text = f"the value of {name} has {size} bytes, more than {MAX_VALUE_BYTES}"
        raise error_for(ErrorCode.INVALID_CONFIG, text)


def operation_type(operation: pb.ConfigOperation) -> pb.ConfigOperationType:
    """Return what an operation does; unspecified is SET. Raises INVALID_REQUEST for a type that there is not."""
    kind = operation.type or SET
    if kind not in _KNOWN:
        raise error_for(ErrorCode.INVALID_REQUEST, f"unknown type {kind} of an operation on {operation.name!r}")
    return kind


def changed_value(current: str | None, operation: pb.ConfigOperation, info: SettingInfo) -> str | None:
    """Return what a setting becomes; None when it is not set any more.

    APPEND and SUBTRACT begin with the default where nothing is set. What is appended twice is there once, and what
    is not there is subtracted without effect.

    Raises:
        TidelogError: INVALID_CONFIG, a setting that is no list is appended to or subtracted from, or a value is too
            long; INVALID_REQUEST, no such operation.
    """
    match operation_type(operation):
        case pb.CONFIG_OPERATION_TYPE_SET:
            value: str | None = operation.value
        case pb.CONFIG_OPERATION_TYPE_DELETE:
            return None
        case pb.CONFIG_OPERATION_TYPE_APPEND:
            parts = _parts_to_change(current, operation, info)
            value = ",".join(dict.fromkeys([*parts, *_parts(operation.value)]))
        case pb.CONFIG_OPERATION_TYPE_SUBTRACT:
            gone = set(_parts(operation.value))
            value = ",".join(p for p in _parts_to_change(current, operation, info) if p not in gone)
        case _ as never:
            raise AssertionError(never)
    check_value_size(operation.name, value or "")
    return value


def _parts_to_change(current: str | None, operation: pb.ConfigOperation, info: SettingInfo) -> list[str]:
    if info.config_type != "LIST":
        text = f"cannot append to or subtract from {operation.name}: its type is {info.config_type}, not LIST"
        raise error_for(ErrorCode.INVALID_CONFIG, text)
    return _parts((format_value(info.default) or "") if current is None else current)


def _parts(text: str) -> list[str]:
    return [part.strip() for part in text.split(",") if part.strip()]
