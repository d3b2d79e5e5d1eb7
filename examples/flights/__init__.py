"""The flights demo: real records through a crash, read back with Spark and checked one by one."""

import os

# gRPC reports every fork of a process that uses it, and Spark forks to start its JVM. Read when gRPC is imported.
os.environ.setdefault("GRPC_VERBOSITY", "ERROR")
