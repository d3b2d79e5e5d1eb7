"""The source: reads of batch and streaming queries."""
