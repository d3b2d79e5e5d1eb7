"""Definitions of settings by Kafka's rules, and the validation of configurations as Connect's REST API reports it."""

from tidelog_connect.configuration.config_def import (
    NO_DEFAULT_VALUE,
    ConfigDef,
    ConfigKey,
    ConfigValue,
    Importance,
    Recommender,
    Width,
)
from tidelog_connect.configuration.validators import (
    CaseInsensitiveValidString,
    Composite,
    KnownClass,
    ListSize,
    NonEmptyString,
    NonEmptyStringWithoutControlChars,
    NonNull,
    Range,
    Validator,
    ValidList,
    ValidString,
)
from tidelog_connect.configuration.values import (
    ConfigException,
    Password,
    Type,
    double_text,
    parse_value,
    setting_text,
    value_text,
)
