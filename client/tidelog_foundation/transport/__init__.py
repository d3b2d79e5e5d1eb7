"""gRPC transport between Tidelog's processes and clients: channels, and errors as statuses."""

from tidelog_foundation.transport.channels import CHANNEL_OPTIONS, open_channel, server_options
from tidelog_foundation.transport.loop import call_soon, has_network_loop, network_loop, run_on_network, run_sync
from tidelog_foundation.transport.status import abort_with, error_from_rpc, raise_if_cancelled
