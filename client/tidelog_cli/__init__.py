"""The ``tidelog`` command."""

import os

# gRPC's own lines about lost connections would mix with the command's; gRPC reads this at its first import.
os.environ.setdefault("GRPC_VERBOSITY", "NONE")
