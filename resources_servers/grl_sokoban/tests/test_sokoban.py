"""Rooms and moves, levels that can be solved, and what the model's words do in them."""

import itertools
from pathlib import Path

import pytest

from nemo_gym import DataError, InvalidTask
from nemo_gym.jsonl import read_rows
from nemo_gym.testing import make_server, reply, rollout, serving
from resources_servers.grl_sokoban.app import SokobanConfig, SokobanServer
from resources_servers.grl_sokoban.generation import generate
from resources_servers.grl_sokoban.level import MOVES, Level
from resources_servers.grl_sokoban.oracle import solve
from resources_servers.grl_sokoban.prepare import main, prepare
from resources_servers.grl_sokoban.search import shortest_solution

EXAMPLES = list(read_rows(Path(__file__).parents[1] / "data" / "example.jsonl"))

CORRIDOR = "######\n#@ $.#\n######"


@pytest.fixture
def server():
    return make_server(SokobanServer)


def corridor(inside):
    return Level.of_text(f"{'#' * (len(inside) + 2)}\n#{inside}#\n{'#' * (len(inside) + 2)}")


@pytest.mark.parametrize(
    ("before", "move", "after"),
    [
        ("@ $.", "Right", " @$."),
        (" @$.", "Right", "  @*"),
        ("@$$ ..", "Right", "@$$ .."),
        ("@ $.", "Left", "@ $."),
        ("@ $.", "Up", "@ $."),
        ("@*  $.", "Right", " +$ $."),
        (" +$", "Left", "@.$"),
        ("$@.", "Left", "$@."),
        ("  @*", "Right", "  @*"),
        ("@.$", "Right", " +$"),
    ],
)
def test_a_move_steps_pushes_or_is_in_vain(before, move, after):
    assert str(corridor(before).after(move)).splitlines()[1] == f"#{after}#"


def test_a_level_reads_as_it_is_written():
    for text in (CORRIDOR, *(row["level"] for row in EXAMPLES)):
        written = str(Level.of_text(text))
        assert str(Level.of_text(written)) == written
        assert Level.of_text(written) == Level.of_text(text)


def test_outside_of_the_room_there_is_nothing():
    level = Level.of_text("@$.")
    assert level.after("Left") == level.after("Up") == level
    assert level.after("Right").is_solved


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("", "0 players"),
        ("#@ #\n#@$.#", "2 players"),
        ("@$", "1 boxes for 0 goals"),
        ("@.", "0 boxes for 1 goals"),
        ("@ ", "0 boxes for 0 goals"),
        ("@$.x", "signs that mean nothing: x"),
    ],
)
def test_what_is_no_level_is_refused_and_says_why(text, problem):
    with pytest.raises(ValueError, match=problem):
        Level.of_text(text)


@pytest.mark.parametrize(
    ("text", "moves"),
    [
        (CORRIDOR, ["Right", "Right"]),
        ("#####\n#@$.#\n#####", ["Right"]),
        ("####\n#@*#\n####", []),
        ("#####\n#@$ #\n#  .#\n#####", None),
        ("######\n#@$  #\n#   .#\n######", None),
        ("#####\n#.$@#\n#####", ["Left"]),
        ("#####\n#   #\n#@$ #\n# . #\n#####", ["Up", "Right", "Down"]),
    ],
)
def test_the_shortest_solution_is_found_where_there_is_one(text, moves):
    assert shortest_solution(Level.of_text(text)) == moves


def solved_by(level, moves):
    for move in moves:
        level = level.after(move)
    return level.is_solved


def test_no_shorter_way_solves_a_level():
    for seed in range(6):
        level = generate(seed, (5, 5), 1)
        solution = shortest_solution(level)
        assert solved_by(level, solution)
        for length in range(min(len(solution), 6)):
            assert not any(solved_by(level, moves) for moves in itertools.product(MOVES, repeat=length))


@pytest.mark.parametrize(("dim_room", "num_boxes"), [((5, 5), 1), ((7, 7), 2), ((6, 9), 2), ((8, 8), 3)])
def test_every_level_that_is_made_can_be_solved(dim_room, num_boxes):
    for seed in range(8):
        level = generate(seed, dim_room, num_boxes)
        assert level == generate(seed, dim_room, num_boxes)
        assert len(level.boxes) == num_boxes
        assert level.boxes_on_goals == 0
        assert len(str(level).splitlines()) <= dim_room[0]
        assert solved_by(level, shortest_solution(level))
    assert generate(0, dim_room, num_boxes) != generate(1, dim_room, num_boxes)


def test_a_room_that_is_too_small_is_told():
    with pytest.raises(ValueError, match="no level with 6 boxes was found in a room of 4 by 4"):
        generate(0, (4, 4), 6)


async def test_the_oracle_earns_all_and_silence_nothing(server, tmp_path):
    made = prepare(tmp_path / "rows.jsonl", 10, seed=3)
    rows = [*EXAMPLES, *read_rows(made), {"seed": 4}, {"seed": 5, "dim_room": [6, 8], "num_boxes": 1}]
    for row in rows:
        async with rollout(server, **row) as attempt:
            graded = await attempt.verify(reply(*solve(row)))
            assert (graded.reward, graded.terminated) == (1.0, True)
            assert (await attempt.verify(reply(""))).reward == 0.0
            assert (await attempt.verify(reply(*solve(row)[:-1]))).reward == 0.0


def test_a_level_without_a_solution_is_told_by_the_oracle():
    with pytest.raises(DataError, match="no solution"):
        solve({"level": "#####\n#@$ #\n#  .#\n#####"})


async def played(server, said, **row):
    async with serving(server) as client:
        row = {"responses_create_params": {"input": []}, **row}
        told = [(await client.post("/reset", json=row)).json()]
        for text in said:
            turn = {**row, "response": reply(text).model_dump(mode="json")}
            told.append((await client.post("/step", json=turn)).json())
        await client.post("/close")
        return told


async def test_the_model_sees_the_room_after_every_answer(server):
    begun, moved, solved = await played(server, ["right", r"\boxed{Right}"], level=CORRIDOR)
    assert begun["observation"] == CORRIDOR
    assert moved["observation"] == "######\n# @$.#\n######"
    assert (moved["reward"], moved["terminated"]) == (0.0, False)
    assert solved["observation"] == "######\n#  @*#\n######\nSolved."
    assert (solved["reward"], solved["terminated"], solved["truncated"]) == (1.0, True, False)


async def test_several_moves_are_made_in_order_up_to_the_solution_or_the_limit(server):
    *_, last = await played(server, ["<answer>Left, Right, Right, Left</answer>"], level=CORRIDOR)
    assert last["terminated"] is True
    limited = make_server(SokobanServer, moves_per_turn=1)
    *_, last = await played(limited, ["<answer>Right, Right</answer>"], level=CORRIDOR)
    assert last["observation"] == "######\n# @$.#\n######"


async def test_a_game_is_broken_off_when_no_moves_are_left():
    server = make_server(SokobanServer, max_moves=3)
    _, first, last = await played(server, ["left", "up left right right right"], level=CORRIDOR)
    assert first["truncated"] is False
    assert last["observation"] == f"{CORRIDOR}\nNo moves are left."
    assert (last["reward"], last["terminated"], last["truncated"]) == (0.0, False, True)


async def test_the_last_move_may_solve_it():
    server = make_server(SokobanServer, max_moves=2)
    *_, last = await played(server, ["right right"], level=CORRIDOR)
    assert (last["reward"], last["terminated"], last["truncated"]) == (1.0, True, False)


async def test_boxes_and_moves_may_count():
    server = make_server(SokobanServer, box_reward=0.5, move_reward=-0.125, solved_reward=2.0)
    _, away, onto = await played(server, ["Left", "Right, Right"], level="#######\n# *@$.#\n#######")
    # One box leaves its goal, then the other one comes onto its own.
    assert away["reward"] == -0.125 - 0.5
    assert onto["reward"] == -2 * 0.125 + 0.5


async def test_answers_without_a_move_are_told_so_and_end_the_game_when_there_are_three_in_a_row(server):
    _, first, second, moved, *more = await played(server, ["?", "", "left", "?", "?", "?"], level=CORRIDOR)
    for answer in (first, second):
        assert answer["observation"] == f"That names no move; there are Up, Down, Left, Right.\n{CORRIDOR}"
    assert moved["truncated"] is False
    assert [each["truncated"] for each in more] == [False, False, True]
    assert {each["reward"] for each in more} == {0.0}


@pytest.mark.parametrize(
    ("row", "problem"),
    [
        ({"level": "@$"}, "the row's level: the level has 1 boxes for 0 goals"),
        ({"level": "#@*#"}, "the row's level: it is solved from the beginning"),
        ({"seed": 1, "num_boxes": 9}, "num_boxes"),
        ({"seed": 1, "dim_room": [2, 90]}, "4 to 16 squares"),
        ({"seed": 1, "dim_room": [4, 4], "num_boxes": 6}, "take a larger room or fewer boxes"),
    ],
)
async def test_a_row_whose_level_cannot_be_played_fails_the_rollout_and_says_why(server, row, problem):
    with pytest.raises(InvalidTask, match=problem):
        await played(server, [], **row)


async def test_a_row_without_level_and_seed_is_refused(server):
    async with serving(server) as client:
        answer = await client.post("/reset", json={"responses_create_params": {"input": []}})
        assert (answer.status_code, "needs a level or a seed" in answer.text) == (422, True)


@pytest.mark.parametrize("wrong", [{"dim_room": [3, 7]}, {"num_boxes": 0}, {"max_moves": 0}, {"moves_per_turn": 0}])
def test_settings_that_make_no_sense_are_refused(wrong):
    with pytest.raises(ValueError, match=next(iter(wrong))):
        SokobanConfig(host="h", port=1, entrypoint="app.py", name="a", **wrong)


def test_the_same_seed_makes_the_same_rows_with_solutions_of_the_right_length(tmp_path):
    first, again = (prepare(tmp_path / name, 5) for name in "ab")
    assert first.read_bytes() == again.read_bytes()
    for row in read_rows(first):
        assert 4 <= row["shortest_solution"] == len(solve(row)) <= 60


def test_a_file_of_levels_becomes_rows(tmp_path):
    levels = tmp_path / "levels.txt"
    levels.write_text(f"; first\n{CORRIDOR}\n\n; second\n#####\n#.$@#\n#####\n")
    assert main(["--output", str(tmp_path / "rows.jsonl"), "--levels", str(levels)]) == 0
    rows = list(read_rows(tmp_path / "rows.jsonl"))
    assert [row["level"] for row in rows] == [CORRIDOR, "#####\n#.$@#\n#####"]
    assert [row["shortest_solution"] for row in rows] == [2, 1]


@pytest.mark.parametrize(
    ("level", "problem"),
    [
        ("####\n#@$#\n####", "levels.txt:5: the level has 1 boxes for 0 goals."),
        ("#####\n#@$ #\n#  .#\n#####", "levels.txt:5: the level has no solution"),
        ("####\n#@*#\n####", "levels.txt:5: the level is solved from the beginning"),
    ],
)
def test_a_file_with_what_is_no_level_is_told_with_its_line_and_nothing_is_written(tmp_path, capsys, level, problem):
    levels, output = tmp_path / "levels.txt", tmp_path / "rows.jsonl"
    levels.write_text(f"{CORRIDOR}\n\n{level}\n")
    assert main(["--output", str(output), "--levels", str(levels)]) == 1
    assert problem in capsys.readouterr().err
    assert not output.exists()


def test_a_missing_file_and_a_room_too_small_are_told_in_one_paragraph(tmp_path, capsys):
    output = str(tmp_path / "rows.jsonl")
    assert main(["--output", output, "--levels", str(tmp_path / "none.txt")]) == 1
    assert "none.txt: cannot be read" in capsys.readouterr().err
    assert main(["--output", output, "--dim-room", "4", "4", "--num-boxes", "5"]) == 1
    assert "no level with 5 boxes" in capsys.readouterr().err
