"""The effect of a configuration change on one setting: set, delete, append or subtract (KIP-339)."""

from __future__ import annotations

from tidelog_foundation.config.settings import SettingInfo
from tidelog_foundation.errors import ErrorCode, error_for
from tidelog_foundation.requests.configs import ConfigOperation, ConfigOperationType

MAX_VALUE_BYTES = 32_767
"""The longest value, in bytes of UTF-8."""

_SET = ConfigOperationType.SET
_DELETE = ConfigOperationType.DELETE
_APPEND = ConfigOperationType.APPEND
_SUBTRACT = ConfigOperationType.SUBTRACT


def check_value_size(name: str, value: str) -> None:
    """Raise INVALID_CONFIG if a value is too long."""
    size = len(value.encode())
    if size > MAX_VALUE_BYTES:
        text = f"the value of {name} has {size} bytes, more than {MAX_VALUE_BYTES}"
        raise error_for(ErrorCode.INVALID_CONFIG, text)


def changed_value(current: str | None, operation: ConfigOperation, info: SettingInfo) -> str | None:
    """Return a setting's new value; None if it is deleted.

    APPEND and SUBTRACT start from the default if nothing is set. Appending an existing element or subtracting a missing
    one has no effect.

    Raises:
        TidelogError: INVALID_CONFIG for APPEND or SUBTRACT on a setting that is not a list, or for a value that is too
            long; INVALID_REQUEST for an unknown operation.
    """
    kind = operation.type or _SET
    if kind == _DELETE:
        return None
    if kind == _SET:
        value = operation.value
    elif kind == _APPEND:
        value = ",".join(dict.fromkeys([*_parts_to_change(current, operation, info), *_parts(operation.value)]))
    elif kind == _SUBTRACT:
        gone = set(_parts(operation.value))
        value = ",".join(p for p in _parts_to_change(current, operation, info) if p not in gone)
    else:
        raise error_for(ErrorCode.INVALID_REQUEST, f"unknown type {kind} of an operation on {operation.name!r}")
    check_value_size(operation.name, value)
    return value


def _parts_to_change(current: str | None, operation: ConfigOperation, info: SettingInfo) -> list[str]:
    if info.config_type != "LIST":
        text = f"cannot append to or subtract from {operation.name}: its type is {info.config_type}, not LIST"
        raise error_for(ErrorCode.INVALID_CONFIG, text)
    return _parts((info.default_text or "") if current is None else current)


def _parts(text: str) -> list[str]:
    return [part.strip() for part in text.split(",") if part.strip()]
