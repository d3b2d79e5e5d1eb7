"""How Tidelog's processes and clients reach each other over gRPC: channels, and errors as statuses."""

from tidelog.transport.channels import CHANNEL_OPTIONS, open_channel, server_options
from tidelog.transport.status import abort_with, error_from_rpc

__all__ = ["CHANNEL_OPTIONS", "abort_with", "error_from_rpc", "open_channel", "server_options"]
