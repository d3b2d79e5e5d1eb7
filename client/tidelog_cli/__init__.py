"""The ``tidelog`` command."""

import os

# gRPC's own lines about lost connections would stand between the command's; it reads this when first imported.
os.environ.setdefault("GRPC_VERBOSITY", "NONE")
