"""Conversion of frames and series of pandas, polars and other libraries to Arrow tables and arrays.

It imports only libraries that are already loaded, apart from pyarrow for a conversion.
"""

from __future__ import annotations

import sys
from typing import Any

_IS_ARROWS = ("column_names", "chunks", "buffers")
"""The attributes of pyarrow's tables and batches, chunked arrays, and arrays."""


def to_arrow(data: Any) -> Any:
    """Return a frame as an Arrow table and a series as an Arrow array; return anything else unchanged.

    Frames and series may be those of pandas, without their index, and all with Arrow's PyCapsule interface, such as
    polars'.

    Raises:
        TypeError: a column has values without an Arrow type, or a frame is lazy.
        ModuleNotFoundError: pyarrow is not installed.
    """
    if any(hasattr(data, name) for name in _IS_ARROWS):
        return data
    pandas = sys.modules.get("pandas")
    if pandas is not None and isinstance(data, pandas.DataFrame | pandas.Series):
        return _from_pandas(data, is_frame=isinstance(data, pandas.DataFrame))
    if hasattr(data, "__arrow_c_stream__"):
        return _from_stream(data)
    if hasattr(data, "__arrow_c_array__"):
        return _from_array(data)
    if hasattr(data, "collect") and hasattr(data, "collect_schema"):
        raise TypeError("data is a lazy query: pass the result of collect()")
    return data


def _from_pandas(data: Any, *, is_frame: bool) -> Any:
    pyarrow = _pyarrow()
    try:
        if is_frame:
            return pyarrow.Table.from_pandas(data, preserve_index=False)
        return pyarrow.array(data, from_pandas=True)
    except (pyarrow.ArrowInvalid, pyarrow.ArrowTypeError) as error:
        raise TypeError(
            f"a column has values that Arrow cannot take together: {'; '.join(map(str, error.args))}"
        ) from error


def _from_stream(data: Any) -> Any:
    pyarrow = _pyarrow()
    try:
        return pyarrow.table(data)
    except pyarrow.ArrowInvalid:
        # Only a stream of structs is a table.
        return pyarrow.chunked_array(data)


def _from_array(data: Any) -> Any:
    pyarrow = _pyarrow()
    array = pyarrow.array(data)
    return pyarrow.RecordBatch.from_struct_array(array) if pyarrow.types.is_struct(array.type) else array


def _pyarrow() -> Any:
    try:
        import pyarrow
    except ModuleNotFoundError as error:
        text = "frames and series require pyarrow: pip install 'tidelog[spark]'"
        raise ModuleNotFoundError(text) from error
    return pyarrow
