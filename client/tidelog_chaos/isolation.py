"""Namespaces for a run, so that none of its mounts or networks can outlive it.

The command replaces itself by ``unshare ... <itself>``: only the run's processes then see its mounts and interfaces,
and the kernel removes them with the last process, however it ends. A later run has nothing to clean up. Root is not
needed if users may have namespaces.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Sequence

_MARK = "TIDELOG_CHAOS_ISOLATED"
_COMMAND_S = 30.0


def is_isolated() -> bool:
    """Return whether :func:`isolate` started this process in namespaces."""
    return _MARK in os.environ


def isolate(*, network: bool) -> None:
    """Replace this process by itself in mount namespaces and, with ``network``, network namespaces; once.

    An isolated process continues instead; its loopback interface is up.
    """
    if not is_isolated():
        sys.stdout.flush()
        command = _unshare(network=network)
        os.execvpe(command[0], [*command, sys.executable, *sys.orig_argv[1:]], {**os.environ, _MARK: "1"})
    if network:
        run("ip", "link", "set", "lo", "up")


def why_not(*, network: bool) -> str | None:
    """Return why this machine does not permit such namespaces, or None."""
    if not sys.platform.startswith("linux"):
        return f"namespaces are Linux's, this is {sys.platform}"
    missing = [tool for tool in ("unshare", "mount", *(("ip", "nsenter") if network else ())) if not shutil.which(tool)]
    if missing:
        return f"{', '.join(missing)} is not installed (util-linux, iproute2)"
    if is_isolated():
        return None
    probe = [*_unshare(network=network), "mount", "-t", "tmpfs", "-o", "size=64k", "tidelog", "/mnt"]
    done = subprocess.run(probe, capture_output=True, text=True, timeout=_COMMAND_S)
    return None if done.returncode == 0 else f"no namespaces here: {' '.join(done.stderr.split()) or 'refused'}"


def run(*command: str) -> None:
    """Run a command; raise RuntimeError with its error output.

    Ctrl-C does not reach it: a command is done or undone as a whole.
    """
    try:
        done = subprocess.run(command, capture_output=True, text=True, process_group=0, timeout=_COMMAND_S)
    except subprocess.TimeoutExpired:
        raise RuntimeError(f"{' '.join(command)}: it has not ended after {_COMMAND_S:.0f} s") from None
    if done.returncode:
        raise RuntimeError(f"{' '.join(command)}: {done.stderr.strip() or f'exit code {done.returncode}'}")


def _unshare(*, network: bool) -> Sequence[str]:
    # A slave: mounts of the run stay in it, and what the machine unmounts meanwhile is unmounted in the run too.
    kinds = ["--mount", "--propagation", "slave", *(["--net"] if network else [])]
    return ["unshare", *([] if os.geteuid() == 0 else ["--user", "--map-root-user"]), *kinds, "--"]
