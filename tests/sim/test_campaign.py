"""The runs, output and refusals of `make sim`."""

from __future__ import annotations

import pytest
from sim import campaign
from sim.campaign import Step


def test_campaign_runs_one_seed_of_each_simulation_and_says_which_is_meant(capsys: pytest.CaptureFixture[str]) -> None:
    assert campaign.main(["--seed", "3", "--part", "raft"]) == 0
    assert campaign.main(["--seed", "3", "--part", "cluster"]) == 0
    text = capsys.readouterr().out
    assert "raft: seed 3: all properties hold" in text
    assert "cluster: seed 3: all properties of a cluster hold" in text
    assert text.count("--- all is well") == 2


def test_campaign_shows_the_actions_that_are_named(capsys: pytest.CaptureFixture[str]) -> None:
    assert campaign.main(["--seed", "3", "--part", "cluster", "--actions", "none"]) == 0
    text = capsys.readouterr().out
    assert "metadata: leader" in text
    assert "Topology(" in text
    assert "#0 at" not in text


def test_campaign_runs_some_seeds_and_sums_up(capsys: pytest.CaptureFixture[str]) -> None:
    assert campaign.main(["--seeds", "2", "--part", "cluster"]) == 0
    assert "ok      clusters, 2 seeds" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--seed", "3", "--actions", "1"], "SIM=raft, SIM=cluster or SIM=transactions"),
        (["--part", "cluster", "--actions", "1"], "say SEED="),
        (["--part", "bugs", "--seed", "1"], "leave SEED out"),
        (["--part", "properties", "--seed", "1"], "leave SEED and SEEDS out"),
        (["--part", "properties", "--seeds", "1"], "leave SEED and SEEDS out"),
    ],
)
def test_campaign_refuses_what_has_no_meaning(
    arguments: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit):
        campaign.main(arguments)
    assert message in capsys.readouterr().err


def test_campaign_fails_when_a_part_has_failed(capsys: pytest.CaptureFixture[str]) -> None:
    assert campaign.run([Step("good", lambda: 0), Step("bad", lambda: 3)]) == 1
    text = capsys.readouterr().out
    assert "--- 1 of 2 failed" in text
    assert "FAILED  bad" in text
