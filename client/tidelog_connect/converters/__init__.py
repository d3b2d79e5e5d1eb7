"""Kafka Connect's converters between the bytes of a topic and the data of records, as column expressions."""

from tidelog_connect.converters.converter import Converted, Converter
from tidelog_connect.converters.registry import CONVERTERS, HEADER_CONVERTERS, create_converter
from tidelog_connect.converters.topic_records import NamedConverter, decoded_records, encoded_records
