"""The flights demo: real records, produced through a crash, read back with Spark and checked one by one."""

import os

# gRPC warns at every fork of a process that uses it, and Spark forks to start its JVM. gRPC reads this at import.
os.environ.setdefault("GRPC_VERBOSITY", "ERROR")
