"""The command ``tidelog`` with the fork server of :mod:`forked_processes` for the clusters that it starts.

A short run spends most of its CPU time on the imports of its nodes and controllers.
"""

from __future__ import annotations

from forked_processes import ForkedProcesses

from tidelog.testing.process import ProcessHandle
from tidelog_cli.main import main

if __name__ == "__main__":
    forks = ForkedProcesses()
    ProcessHandle.launch = forks.launch
    try:
        main()
    finally:
        forks.close()
