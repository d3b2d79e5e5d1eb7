"""Files that are replaced as a whole."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tidelog_foundation.replaced_files import replace_file


def test_file_is_written_with_its_mode_and_replaced(tmp_path: Path) -> None:
    path = tmp_path / "key.pem"
    assert replace_file(path, b"first", 0o600) == path
    replace_file(path, b"second", 0o600)
    assert (path.read_bytes(), path.stat().st_mode & 0o777) == (b"second", 0o600)
    assert os.listdir(tmp_path) == ["key.pem"]


def test_file_stays_as_it_was_when_the_new_one_cannot_be_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "profiles.toml"
    replace_file(path, b"first")

    def fail(_: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", fail)
    with pytest.raises(OSError, match="No space left"):
        replace_file(path, b"second")
    assert path.read_bytes() == b"first"
    assert os.listdir(tmp_path) == ["profiles.toml"]
