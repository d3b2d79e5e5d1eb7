"""The settings of a process's log."""

import json
import logging

import pytest

from tidelog_foundation.errors import ConfigError
from tidelog_foundation.logs.settings import start_logging


@pytest.fixture(autouse=True)
def root():
    """Restore the root logger."""
    handlers, level = [*logging.root.handlers], logging.root.level
    yield
    logging.root.handlers[:] = handlers
    logging.root.setLevel(level)
    logging.getLogger("settings.test").setLevel(logging.NOTSET)


def test_json_log_has_one_object_per_line_whatever_the_texts_of_peers(capsys):
    start_logging({"logging.format": "json"})
    try:
        raise ValueError("first\nsecond \u2028 \x85")
    except ValueError:
        logging.getLogger("settings.test").warning("a client says %s", "x\ny", exc_info=True)
    [line] = capsys.readouterr().err.splitlines()
    found = json.loads(line)
    assert (found["level"], found["logger"], found["message"]) == ("WARNING", "settings.test", "a client says x\ny")
    assert found["exception"].endswith("ValueError: first\nsecond \u2028 \x85")
    assert found["time"].endswith("Z")


def test_level_is_of_the_root_and_of_single_loggers(capsys):
    start_logging({"logging.level": "ERROR, settings.test=DEBUG"})
    logging.getLogger("settings.test").debug("shown")
    logging.getLogger("settings.other").warning("hidden")
    [line] = capsys.readouterr().err.splitlines()
    assert line.endswith("DEBUG settings.test shown")


@pytest.mark.parametrize(
    ("key", "value", "named"),
    [
        ("logging.format", "xml", "xml"),
        ("logging.level", "LOUD", '"LOUD" is not one of FATAL, ERROR'),
        ("logging.level", "INFO,a=", '"" is not one of'),
        ("logging.level", "INFO,DEBUG", 'the logger "root" has two levels'),
        ("logging.level", "", '"" is not one of'),
    ],
)
def test_bad_setting_of_the_log_is_named(key, value, named):
    with pytest.raises(ConfigError, match=named) as refused:
        start_logging({key: value})
    assert key in refused.value.message
