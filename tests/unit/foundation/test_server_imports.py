"""A server's start loads what every server needs: imports take most of its time, and memory that it never returns."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

OPTIONAL = ("cryptography", "decimal", "difflib", "gssapi", "jwt", "opentelemetry", "pyarrow", "pysyncobj", "re2")
"""Packages for TLS, logins, exports, patterns and errors, which a server loads with the setting or request."""
START = {
    "node": "tidelog_node.__main__, tidelog_node.server.config, tidelog_node.server.startup",
    "controller": "tidelog_quorum.__main__, tidelog_quorum.server.config, tidelog_quorum.server.process",
    "combined": "tidelog_server.__main__, tidelog_server.combined",
}


def loaded(code: str) -> set[str]:
    """Return the modules that a new process has loaded after this code."""
    program = f"import sys\n{code}\nprint(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=True)
    return set(done.stdout.split())


@pytest.mark.costly
@pytest.mark.parametrize("server", START)
def test_start_loads_no_optional_package(server: str) -> None:
    modules = loaded(f"import {START[server]}")
    assert "grpc" in modules
    assert [name for name in OPTIONAL if name in modules] == []


@pytest.mark.costly
def test_node_loads_rocksdb_with_its_first_view(tmp_path: Path) -> None:
    start = f"import pathlib, {START['node']}\nfrom tidelog_node.coordination.views import open_rocks_view"
    assert "rocksdict" not in loaded(start)
    view = f"open_rocks_view(pathlib.Path({str(tmp_path / 'view')!r}), True)"
    assert "rocksdict" in loaded(f"{start}\n{view}.close()")
