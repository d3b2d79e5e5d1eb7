"""The choice of an engine, and the common interface of both."""

from __future__ import annotations

import os
import pickle
import subprocess
import sys
from types import ModuleType

import pytest

from tidelog_foundation.records import _faults


@pytest.mark.parametrize(("setting", "expected"), [("1", "False"), ("", None)])
def test_engine_is_the_pure_one_when_the_environment_asks(setting: str, expected: str | None) -> None:
    environment = {**os.environ, "TIDELOG_PURE_PYTHON": setting}
    code = "import sys, tidelog_foundation.records as r; print(r.COMPILED); assert 'pyarrow' not in sys.modules"
    run = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=True)
    assert run.stdout.strip() == (expected or str(_compiled_is_built()))


def test_record_has_value_semantics(engine: ModuleType) -> None:
    record = engine.Record(5, 6, 1, b"k", None, (("h", b"x"),))
    same = engine.Record(offset=5, timestamp_ms=6, timestamp_type=1, key=b"k", value=None, headers=(("h", b"x"),))
    assert record == same
    assert hash(record) == hash(same)
    assert record != engine.Record(5, 6, 1, b"k", b"", (("h", b"x"),))
    assert record != "record"
    assert pickle.loads(pickle.dumps(record)) == record
    expected = "Record(offset=5, timestamp_ms=6, timestamp_type=1, key=b'k', value=None, headers=(('h', b'x'),))"
    assert repr(record) == expected
    assert engine.Record(0, 0, 0, None, None).headers == ()
    with pytest.raises(AttributeError):
        record.offset = 7
    with pytest.raises((AttributeError, TypeError)):
        record.other = 7


def test_encoder_leaves_what_it_handed_out_as_it_is(engine: ModuleType) -> None:
    encoder = engine.RecordEncoder()
    encoder.append(None, b"first")
    view, batch = encoder.records(), encoder.batch(bytes(40))
    copies = bytes(view), bytes(bytearray(batch))
    other = encoder.batch(b"\1" * 40)
    assert hash(batch) != hash(other)
    encoder.append(None, b"x" * 100_000)
    encoder.extend([b"y"], None, 5, 0, None)
    assert (bytes(view), batch) == copies
    assert bytes(view)[-6:-1] == b"first"
    assert encoder.batch(bytes(40))[61:] == bytes(encoder.records())
    assert other[61:] == batch[61:]


def test_faults_have_one_text_each() -> None:
    numbers = [value for name, value in vars(_faults).items() if name.startswith("FAULT_")]
    assert sorted(numbers) == list(range(1, len(numbers) + 1))
    for number in numbers:
        assert "batch at offset 3" in _faults.malformed(number, 3, 0, 0, 7, 1).message


def _compiled_is_built() -> bool:
    try:
        from tidelog_foundation.records import _fast
    except ImportError:
        return False
    return _fast is not None
