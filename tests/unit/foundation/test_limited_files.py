"""Files are read whole within a limit, and errors name the file without its content."""

from __future__ import annotations

from pathlib import Path

import pytest

from tidelog_foundation.errors import ConfigError
from tidelog_foundation.limited_files import read_file, read_text


def test_file_is_read_whole_up_to_the_limit(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_bytes("grün".encode())
    assert read_file(path, 5) == "grün".encode()
    assert read_text(str(path), 5) == "grün"
    with pytest.raises(ConfigError) as failed:
        read_file(path, 4, "ssl.ca.location")
    assert failed.value.message == f"ssl.ca.location {path} has more than 4 bytes"


def test_file_that_cannot_be_read_is_an_error_without_its_content(tmp_path: Path) -> None:
    (tmp_path / "binary").write_bytes(b"secret \xff")
    cases = [(str(tmp_path), "Is a directory"), ("no\0path", "null byte"), ("x" * 5000, "xxx...: File name too long")]
    for path, reason in [*cases, (str(tmp_path / "binary"), "not UTF-8 text")]:
        with pytest.raises(ConfigError, match=f"cannot read the schema in .*{reason}") as failed:
            read_text(path, 100, "the schema in")
        assert "secret" not in failed.value.message
        assert failed.value.__cause__ is None or "secret" not in repr(failed.value.__cause__)
