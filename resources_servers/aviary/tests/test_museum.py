"""Every museum can be put in order, and each action describes its result."""

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
    """Return the description after each move, such as `go tower`."""
    return [getattr(watch, move.partition(" ")[0])(move.partition(" ")[2]) for move in moves]


def played(seed):
    """Follow the plan of a museum and return the share, `is_over` and the battery before each move and at the end."""
    watch = Round(museum := museum_of(seed))
    states = [(watch.share_in_place, watch.is_over, watch.battery)]
    for move in plan(museum):
        getattr(watch, move.tool)(move.target)
        states.append((watch.share_in_place, watch.is_over, watch.battery))
    return states


def test_every_museum_can_be_completed_with_its_battery():
    wrong = []
    for seed in range(300):
        first, *_, last = states = played(seed)
        is_over_early = any(is_over for _, is_over, _ in states[:-1])
        if first[0] != 0.0 or is_over_early or last != (1.0, True, 0):
            wrong.append((seed, states))
    assert wrong == []


def test_museum_depends_only_on_the_seed():
    assert museum_of(3) == museum_of(3)
    assert len({briefing(museum_of(seed)) for seed in range(50)}) == 50


def test_briefing_lists_doors_key_and_places():
    text = briefing(SMALL)
    assert "foyer - gallery; gallery - tower" in text
    assert "The tower is locked; the key is in the gallery" in text
    assert "the vase lies in the gallery, its place is the tower" in text


def test_locked_room_needs_the_key(watch):
    _, refused, _, opened = done(watch, "go gallery", "go tower", "take key", "go tower")
    assert "locked" in refused
    assert "You are in the tower" in opened


@pytest.mark.parametrize(
    ("moves", "problem"),
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
def test_impossible_move_is_explained_and_changes_nothing(watch, moves, problem):
    done(watch, *moves[:-1])
    before = (watch.room, list(watch.carried), watch.has_key, dict(watch.lies_in), watch.battery)
    (answer,) = done(watch, moves[-1])
    assert problem in answer
    assert len(answer) < 300
    assert before == (watch.room, watch.carried, watch.has_key, watch.lies_in, watch.battery)


def test_exhibit_earns_its_share_only_while_in_place(watch):
    done(watch, "go gallery", "take mask", "go foyer")
    assert "does not belong here" not in watch.put("mask")
    assert watch.share_in_place == pytest.approx(1 / 3)
    watch.take("mask")
    assert watch.share_in_place == 0.0


def test_round_ends_with_lamp_out_and_empty_hands(watch):
    while watch.battery:
        done(watch, "go gallery", "go foyer")
    assert watch.is_over
    assert watch.share_in_place == 0.0


def test_exhibit_can_be_put_down_in_the_dark(watch):
    done(watch, "go gallery", "take mask", "go foyer")
    while watch.battery:
        done(watch, "go gallery", "go foyer")
    assert (watch.room, watch.is_over) == ("foyer", False)
    assert "lamp has gone out" in watch.go("gallery")
    watch.put("mask")
    assert watch.is_over
    assert watch.share_in_place == pytest.approx(1 / 3)


def test_look_lists_the_rooms_and_the_carried_things(watch):
    done(watch, "go gallery", "take key", "take vase")
    text = watch.look()
    assert "Here: mask, fan" in text
    assert f"You carry: vase, {KEY}" in text
