"""The environment of a result: the machine, the interpreter, the revision. It names no host and no path."""

from __future__ import annotations

import datetime
import os
import platform
import subprocess
from pathlib import Path

from tidelog_foundation.records import COMPILED

Facts = dict[str, str | int | float | bool]


def facts(*, quick: bool) -> Facts:
    """Return the header of a run's results."""
    return {
        "cpu": _cpu_model(),
        "cpus": os.cpu_count() or 0,
        "memory_gib": round(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30, 1),
        "system": f"{platform.system()} {platform.release().partition('-')[0]}",
        "python": platform.python_version(),
        "compiled_engine": COMPILED,
        "revision": _revision(),
        "date": datetime.datetime.now(datetime.UTC).strftime("%Y-%m-%d %H:%M UTC"),
        "quick": quick,
    }


def _cpu_model() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except FileNotFoundError:
        return platform.processor() or platform.machine()
    models = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return models[0] if models else platform.machine()


def _revision() -> str:
    """Return the checked-out commit, marked ``+`` if tracked files differ from it."""
    folder = Path(__file__).parent
    try:
        commit = _git(folder, "rev-parse", "--short=12", "HEAD")
        return commit + ("+" if _git(folder, "status", "--porcelain", "--untracked-files=no") else "")
    except (FileNotFoundError, subprocess.CalledProcessError):
        return "unknown"


def _git(folder: Path, *arguments: str) -> str:
    done = subprocess.run(["git", "-C", folder, *arguments], capture_output=True, text=True, check=True)
    return done.stdout.strip()
