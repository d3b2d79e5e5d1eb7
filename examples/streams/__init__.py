"""Stream processing with Spark on the flights of 2013, one program for each technique."""

import os

# gRPC warns at every fork of a process that uses it, and Spark forks to start its JVM. gRPC reads this at import.
os.environ.setdefault("GRPC_VERBOSITY", "ERROR")
