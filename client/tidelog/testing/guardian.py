"""A script that leads a test cluster's process group and kills the cluster when its owner is gone.

It waits for the end of its standard input, which comes when the owner closes the pipe or dies in any way. Then it sends
SIGKILL to the whole group, itself included. This covers a killed owner, a paused node and a thread that started the
cluster; a parent-death signal would not.
"""

import os
import signal
import sys


def main() -> None:
    """Wait until the owner ends, then kill the group."""
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    while os.read(sys.stdin.fileno(), 4096):
        pass
    os.killpg(os.getpgrp(), signal.SIGKILL)


if __name__ == "__main__":
    main()
