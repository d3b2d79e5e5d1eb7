from __future__ import annotations

import pytest

from tidelog_foundation.errors import ConfigError
from tidelog_foundation.security import ANONYMOUS, Principal


def test_principal_text_round_trips_with_colons_in_its_name() -> None:
    assert Principal.parse("User:CN=a:b,O=x") == Principal("User", "CN=a:b,O=x")
    assert str(Principal.parse("User:CN=a:b,O=x")) == "User:CN=a:b,O=x"
    assert str(ANONYMOUS) == "User:ANONYMOUS"


@pytest.mark.parametrize("text", ["", "alice", ":alice", "User:"])
def test_principal_parse_names_the_value_that_is_no_principal(text: str) -> None:
    with pytest.raises(ConfigError, match=f'"{text}".*User:alice'):
        Principal.parse(text)
