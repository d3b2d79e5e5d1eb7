from __future__ import annotations

import os

# gRPC prints a line whenever a server goes away, which is what many of these tests do. Read when gRPC is imported.
os.environ.setdefault("GRPC_VERBOSITY", "ERROR")
