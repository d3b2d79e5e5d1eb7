"""Protobuf modules that code generated from Confluent's schemas imports."""
