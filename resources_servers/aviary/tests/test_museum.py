"""The museum of a seed: it can be put right, and the watch is told what it can and cannot do."""

import pytest

from resources_servers.aviary.museum import KEY, Exhibit, Museum, Round, briefing, museum_of, plan

SMALL = Museum(
    rooms=("foyer", "gallery", "tower"),
    doors=frozenset({frozenset({"foyer", "gallery"}), frozenset({"gallery", "tower"})}),
    locked_room="tower",
    key_room="gallery",
    exhibits=(
        Exhibit("vase", "gallery", "tower"),
        Exhibit("mask", "gallery", "foyer"),
        Exhibit("fan", "gallery", "foyer"),
    ),
)


@pytest.fixture
def watch():
    return Round(SMALL)


def done(watch, *moves):
    """What each move, such as `go tower`, has told."""
    return [getattr(watch, move.partition(" ")[0])(move.partition(" ")[2]) for move in moves]


@pytest.mark.parametrize("seed", range(300))
def test_every_museum_can_be_put_right_with_the_lamp_that_there_is(seed):
    museum = museum_of(seed)
    watch = Round(museum)
    assert (watch.share_in_place, watch.is_over) == (0.0, False)
    for move in plan(museum):
        assert not watch.is_over
        getattr(watch, move.tool)(move.target)
    assert (watch.share_in_place, watch.is_over, watch.battery) == (1.0, True, 0)


def test_a_seed_makes_the_same_museum_and_another_one_another():
    assert museum_of(3) == museum_of(3)
    assert len({briefing(museum_of(seed)) for seed in range(50)}) == 50


def test_the_briefing_tells_doors_key_and_places():
    told = briefing(SMALL)
    assert "foyer - gallery; gallery - tower" in told
    assert "The tower is locked; the key is in the gallery" in told
    assert "the vase lies in the gallery, its place is the tower" in told


def test_the_locked_room_opens_with_the_key_alone(watch):
    _, refused, _, opened = done(watch, "go gallery", "go tower", "take key", "go tower")
    assert "locked" in refused
    assert "You are in the tower" in opened


@pytest.mark.parametrize(
    ("moves", "told"),
    [
        (["go tower"], "No door leads"),
        (["go " + "x" * 1000], "No door leads"),
        (["take vase"], "There is no 'vase' here"),
        (["take key"], "There is no 'key' here"),
        (["put vase"], "You do not carry"),
        (["go gallery", "take vase", "take mask", "take fan"], "two hands"),
        (["go gallery", "take key", "take key"], "There is no 'key' here"),
    ],
)
def test_what_cannot_be_done_is_told_and_changes_nothing(watch, moves, told):
    done(watch, *moves[:-1])
    before = (watch.room, list(watch.carried), watch.has_key, dict(watch.lies_in), watch.battery)
    (said,) = done(watch, moves[-1])
    assert told in said
    assert len(said) < 300
    assert before == (watch.room, watch.carried, watch.has_key, watch.lies_in, watch.battery)


def test_each_exhibit_in_its_place_is_its_share_and_counts_no_more_when_taken_away(watch):
    done(watch, "go gallery", "take mask", "go foyer")
    assert "does not belong here" not in watch.put("mask")
    assert watch.share_in_place == pytest.approx(1 / 3)
    watch.take("mask")
    assert watch.share_in_place == 0.0


def test_the_round_is_over_when_the_lamp_goes_out_with_empty_hands(watch):
    while watch.battery:
        done(watch, "go gallery", "go foyer")
    assert watch.is_over
    assert watch.share_in_place == 0.0


def test_in_the_dark_what_is_carried_can_still_be_put_down(watch):
    done(watch, "go gallery", "take mask", "go foyer")
    while watch.battery:
        done(watch, "go gallery", "go foyer")
    assert (watch.room, watch.is_over) == ("foyer", False)
    assert "lamp has gone out" in watch.go("gallery")
    watch.put("mask")
    assert watch.is_over
    assert watch.share_in_place == pytest.approx(1 / 3)


def test_looking_names_what_lies_here_and_what_is_carried(watch):
    done(watch, "go gallery", "take key", "take vase")
    told = watch.look()
    assert "Here: mask, fan" in told
    assert f"You carry: vase, {KEY}" in told
