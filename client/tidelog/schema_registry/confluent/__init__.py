"""Protobuf modules imported by code generated from Confluent's schemas."""
