"""An earlier release of Tidelog, built from a git ref into an environment of its own, and processes that run on it."""

from __future__ import annotations

import subprocess
import sys
import tarfile
import tempfile
from pathlib import Path

from tidelog.testing.process import Place, ProcessHandle

ROOT = Path(__file__).resolve().parents[2]
_FOLDER = ROOT / "build" / "upgrade"
_RUNNER = """\
#!/bin/sh
# Runs an interpreter's arguments with the interpreter that a file names: FILE INTERPRETER ARGUMENTS...
interpreter=$(cat "$1")
shift 2
exec "$interpreter" "$@"
"""


def newest_tag() -> str | None:
    """Return the newest tag that the tree contains, or None."""
    command = ["git", "-C", str(ROOT), "describe", "--tags", "--abbrev=0"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    return done.stdout.strip() or None


def interpreter_of(ref: str) -> str:
    """Return the interpreter of an environment with the release of a git ref, which is built if it is missing."""
    command = ["git", "-C", str(ROOT), "rev-parse", "--verify", f"{ref}^{{commit}}"]
    commit = subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()
    folder = _FOLDER / commit
    interpreter, marker = folder / "env" / "bin" / "python", folder / "complete"
    if not marker.exists():
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=folder) as tree:
            archive = Path(tree) / "tree.tar"
            subprocess.run(["git", "-C", str(ROOT), "archive", "--output", str(archive), commit], check=True)
            with tarfile.open(archive) as tar:
                tar.extractall(tree, filter="data")
            subprocess.run([sys.executable, "-m", "venv", "--clear", str(folder / "env")], check=True)
            install = ["-m", "pip", "install", "--quiet", "--disable-pip-version-check", f"{tree}[node,quorum,cli]"]
            subprocess.run([str(interpreter), *install], check=True)
        marker.touch()
    return str(interpreter)


class Releases:
    """The release that each process of a cluster runs on, the tree's or an earlier one; ``folder`` keeps the choice."""

    def __init__(self, folder: Path, earlier: str) -> None:
        self._folder = folder
        self._earlier = earlier
        self._runner = folder / "run"
        self._runner.write_text(_RUNNER)
        self._runner.chmod(0o755)

    def place(self, kind: str, number: int) -> Place:
        """Return the place of a process that begins with the earlier release."""
        file = self._folder / f"{kind}-{number}"
        file.write_text(self._earlier)
        return Place(wrapper=(str(self._runner), str(file)))

    def choose(self, process: ProcessHandle, *, earlier: bool) -> None:
        """Choose the release of the next start."""
        file = self._folder / process.name.replace(" ", "-")
        file.write_text(self._earlier if earlier else sys.executable)
