"""Programs of Debian's packages: installed ones, or those that apt downloads to ``build/compat``.

Nothing is installed, and no right of the administrator is needed: apt keeps its lists and archives in the folder.
Only ``make compat``, which sets ``TIDELOG_COMPAT``, runs apt. Without it, the tests use only files that exist.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from functools import cache
from pathlib import Path

from compat.jars import BUILD, Unavailable

_KCAT = ("kcat", "librdkafka1", "libyajl2")
_TIMEOUT_S = 300


@cache
def kcat() -> tuple[str, ...]:
    """Return the command that starts kcat. Raises Unavailable."""
    if found := shutil.which("kcat"):
        return (found,)
    root = _unpacked("kcat", _KCAT)
    libraries = os.pathsep.join(sorted({str(path.parent) for path in root.rglob("*.so.*")}))
    return ("env", f"LD_LIBRARY_PATH={libraries}", str(root / "usr/bin/kcat"))


def _unpacked(name: str, packages: tuple[str, ...]) -> Path:
    """Return the folder with the files of packages, brought by apt where allowed. Raises Unavailable."""
    target = BUILD / f"debian-{name}"
    if target.is_dir():
        return target
    if not os.environ.get("TIDELOG_COMPAT"):
        raise Unavailable(f"{name} is not on the PATH: install it, or run make compat, which fetches it")
    missing = next((tool for tool in ("apt-get", "dpkg") if shutil.which(tool) is None), None)
    if missing is not None:
        raise Unavailable(f"{name} is not on the PATH, and there is no {missing} to fetch it")
    fresh = target.with_name(f"{target.name}.{os.getpid()}")
    try:
        _download(fresh / "apt", packages)
        for archive in sorted((fresh / "apt").glob("*.deb")):
            _run("dpkg", "-x", str(archive), str(fresh / "root"))
        (fresh / "root").rename(target)
    finally:
        shutil.rmtree(fresh, ignore_errors=True)
    return target


def _download(folder: Path, packages: tuple[str, ...]) -> None:
    for part in ("lists/partial", "cache/archives/partial"):
        (folder / part).mkdir(parents=True)
    # apt drops its rights for a user who cannot write in a folder of ours.
    places = (f"Dir::State::Lists={folder}/lists", f"Dir::Cache={folder}/cache", "APT::Sandbox::User=")
    options = [part for place in places for part in ("-o", place)]
    _run("apt-get", "-qq", *options, "update")
    _run("apt-get", "-qq", *options, "download", *packages, folder=folder)


def _run(*command: str, folder: Path | None = None) -> None:
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=_TIMEOUT_S, check=False)
    if done.returncode:
        raise Unavailable(f"{command[0]} ended with {done.returncode}: {done.stderr.strip()[-500:]}")
