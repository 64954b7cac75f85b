"""Rooms and moves, solvable levels, and the effect of the model's answers."""

import itertools
from pathlib import Path

import pytest

from nemo_gym import DataError, InvalidTask, run_prepare
from nemo_gym.jsonl import read_rows
from nemo_gym.testing import make_server, reply, rollout, serving
from resources_servers.grl_sokoban.app import SokobanConfig, SokobanServer
from resources_servers.grl_sokoban.generation import generate
from resources_servers.grl_sokoban.level import MOVES, Level
from resources_servers.grl_sokoban.oracle import solve
from resources_servers.grl_sokoban.prepare import prepare
from resources_servers.grl_sokoban.search import shortest_solution

EXAMPLES = list(read_rows(Path(__file__).parents[1] / "data" / "example.jsonl"))

CORRIDOR = "######\n#@ $.#\n######"


@pytest.fixture
def server():
    return make_server(SokobanServer)


def corridor(inside):
    return Level.of_text(f"{'#' * (len(inside) + 2)}\n#{inside}#\n{'#' * (len(inside) + 2)}")


def test_move_steps_pushes_or_changes_nothing():
    cases = [
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
    ]
    wrong = [
        (before, move, after, found)
        for before, move, after in cases
        if (found := str(corridor(before).after(move)).splitlines()[1]) != f"#{after}#"
    ]
    assert wrong == []


def test_level_round_trips_through_text():
    for text in (CORRIDOR, *(row["level"] for row in EXAMPLES)):
        written = str(Level.of_text(text))
        assert str(Level.of_text(written)) == written
        assert Level.of_text(written) == Level.of_text(text)


def test_squares_outside_the_room_block_moves():
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
        ("@$.x", "unknown characters: x"),
    ],
)
def test_invalid_level_is_rejected_with_the_reason(text, problem):
    with pytest.raises(ValueError, match=problem):
        Level.of_text(text)


def test_shortest_solution_is_found_if_one_exists():
    cases = [
        (CORRIDOR, ["Right", "Right"]),
        ("#####\n#@$.#\n#####", ["Right"]),
        ("####\n#@*#\n####", []),
        ("#####\n#@$ #\n#  .#\n#####", None),
        ("######\n#@$  #\n#   .#\n######", None),
        ("#####\n#.$@#\n#####", ["Left"]),
        ("#####\n#   #\n#@$ #\n# . #\n#####", ["Up", "Right", "Down"]),
    ]
    wrong = [
        (text, moves, found) for text, moves in cases if (found := shortest_solution(Level.of_text(text))) != moves
    ]
    assert wrong == []


def solved_by(level, moves):
    for move in moves:
        level = level.after(move)
    return level.is_solved


def test_no_shorter_solution_exists():
    for seed in range(6):
        level = generate(seed, (5, 5), 1)
        solution = shortest_solution(level)
        assert solved_by(level, solution)
        for length in range(min(len(solution), 6)):
            assert not any(solved_by(level, moves) for moves in itertools.product(MOVES, repeat=length))


@pytest.mark.parametrize(("dim_room", "num_boxes"), [((5, 5), 1), ((7, 7), 2), ((6, 9), 2), ((8, 8), 3)])
def test_every_generated_level_is_solvable(dim_room, num_boxes):
    for seed in range(8):
        level = generate(seed, dim_room, num_boxes)
        assert level == generate(seed, dim_room, num_boxes)
        assert len(level.boxes) == num_boxes
        assert level.boxes_on_goals == 0
        assert len(str(level).splitlines()) <= dim_room[0]
        assert solved_by(level, shortest_solution(level))
    assert generate(0, dim_room, num_boxes) != generate(1, dim_room, num_boxes)


def test_too_small_room_is_reported():
    with pytest.raises(ValueError, match="no level with 6 boxes was found in a room of 4 by 4"):
        generate(0, (4, 4), 6)


async def test_oracle_earns_full_reward_and_silence_none(server, tmp_path):
    made = prepare(tmp_path / "rows.jsonl", 10, seed=3)
    rows = [*EXAMPLES, *read_rows(made), {"seed": 4}, {"seed": 5, "dim_room": [6, 8], "num_boxes": 1}]
    for row in rows:
        async with rollout(server, **row) as attempt:
            graded = await attempt.verify(reply(*solve(row)))
            assert (graded.reward, graded.terminated) == (1.0, True)
            assert (await attempt.verify(reply(""))).reward == 0.0
            assert (await attempt.verify(reply(*solve(row)[:-1]))).reward == 0.0


def test_oracle_rejects_an_unsolvable_level():
    with pytest.raises(DataError, match="no solution"):
        solve({"level": "#####\n#@$ #\n#  .#\n#####"})


async def played(server, texts, **row):
    async with serving(server) as client:
        row = {"responses_create_params": {"input": []}, **row}
        replies = [(await client.post("/reset", json=row)).json()]
        for text in texts:
            turn = {**row, "response": reply(text).model_dump(mode="json")}
            replies.append((await client.post("/step", json=turn)).json())
        await client.post("/close")
        return replies


async def test_model_sees_the_room_after_every_answer(server):
    first, moved, solved = await played(server, ["right", r"\boxed{Right}"], level=CORRIDOR)
    assert first["observation"] == CORRIDOR
    assert moved["observation"] == "######\n# @$.#\n######"
    assert (moved["reward"], moved["terminated"]) == (0.0, False)
    assert solved["observation"] == "######\n#  @*#\n######\nSolved."
    assert (solved["reward"], solved["terminated"], solved["truncated"]) == (1.0, True, False)


async def test_moves_stop_at_the_solution_or_limit(server):
    *_, last = await played(server, ["<answer>Left, Right, Right, Left</answer>"], level=CORRIDOR)
    assert last["terminated"] is True
    limited = make_server(SokobanServer, moves_per_turn=1)
    *_, last = await played(limited, ["<answer>Right, Right</answer>"], level=CORRIDOR)
    assert last["observation"] == "######\n# @$.#\n######"


async def test_game_is_truncated_when_moves_run_out():
    server = make_server(SokobanServer, max_moves=3)
    _, first, last = await played(server, ["left", "up left right right right"], level=CORRIDOR)
    assert first["truncated"] is False
    assert last["observation"] == f"{CORRIDOR}\nNo moves are left."
    assert (last["reward"], last["terminated"], last["truncated"]) == (0.0, False, True)


async def test_last_move_may_solve_the_level():
    server = make_server(SokobanServer, max_moves=2)
    *_, last = await played(server, ["right right"], level=CORRIDOR)
    assert (last["reward"], last["terminated"], last["truncated"]) == (1.0, True, False)


async def test_boxes_and_moves_may_earn_rewards():
    server = make_server(SokobanServer, box_reward=0.5, move_reward=-0.125, solved_reward=2.0)
    _, away, onto = await played(server, ["Left", "Right, Right"], level="#######\n# *@$.#\n#######")
    # One box leaves its goal, then the other one reaches its own.
    assert away["reward"] == -0.125 - 0.5
    assert onto["reward"] == -2 * 0.125 + 0.5


async def test_three_consecutive_unreadable_answers_end_the_game(server):
    _, first, second, moved, *more = await played(server, ["?", "", "left", "?", "?", "?"], level=CORRIDOR)
    for answer in (first, second):
        assert answer["observation"] == f"That names no move. The moves are Up, Down, Left, Right.\n{CORRIDOR}"
    assert moved["truncated"] is False
    assert [each["truncated"] for each in more] == [False, False, True]
    assert {each["reward"] for each in more} == {0.0}


@pytest.mark.parametrize(
    ("row", "problem"),
    [
        ({"level": "@$"}, "the row's level: the level has 1 boxes for 0 goals"),
        ({"level": "#@*#"}, "the row's level: the level is already solved"),
        ({"seed": 1, "num_boxes": 9}, "num_boxes"),
        ({"seed": 1, "dim_room": [2, 90]}, "4 to 16 squares"),
        ({"seed": 1, "dim_room": [4, 4], "num_boxes": 6}, "Use a larger room or fewer boxes"),
    ],
)
async def test_unplayable_level_fails_the_rollout_with_the_reason(server, row, problem):
    with pytest.raises(InvalidTask, match=problem):
        await played(server, [], **row)


async def test_row_without_level_and_seed_is_rejected(server):
    async with serving(server) as client:
        answer = await client.post("/reset", json={"responses_create_params": {"input": []}})
        assert (answer.status_code, "needs a level or a seed" in answer.text) == (422, True)


@pytest.mark.parametrize("wrong", [{"dim_room": [3, 7]}, {"num_boxes": 0}, {"max_moves": 0}, {"moves_per_turn": 0}])
def test_invalid_settings_are_rejected(wrong):
    with pytest.raises(ValueError, match=next(iter(wrong))):
        SokobanConfig(host="h", port=1, entrypoint="app.py", name="a", **wrong)


def test_rows_depend_only_on_the_seed(tmp_path):
    first, again = (prepare(tmp_path / name, 5) for name in "ab")
    assert first.read_bytes() == again.read_bytes()
    for row in read_rows(first):
        assert 4 <= row["shortest_solution"] == len(solve(row)) <= 60


def test_file_of_levels_becomes_rows(tmp_path):
    levels = tmp_path / "levels.txt"
    levels.write_text(f"; first\n{CORRIDOR}\n\n; second\n#####\n#.$@#\n#####\n")
    run_prepare(prepare, ["--output", str(tmp_path / "rows.jsonl"), "--levels", str(levels)])
    rows = list(read_rows(tmp_path / "rows.jsonl"))
    assert [row["level"] for row in rows] == [CORRIDOR, "#####\n#.$@#\n#####"]
    assert [row["shortest_solution"] for row in rows] == [2, 1]


@pytest.mark.parametrize(
    ("level", "problem"),
    [
        ("####\n#@$#\n####", "levels.txt:5: the level has 1 boxes for 0 goals."),
        ("#####\n#@$ #\n#  .#\n#####", "levels.txt:5: the level has no solution"),
        ("####\n#@*#\n####", "levels.txt:5: the level is already solved"),
    ],
)
def test_invalid_level_is_reported_with_its_line(tmp_path, capsys, level, problem):
    levels, output = tmp_path / "levels.txt", tmp_path / "rows.jsonl"
    levels.write_text(f"{CORRIDOR}\n\n{level}\n")
    with pytest.raises(SystemExit, match="1"):
        run_prepare(prepare, ["--output", str(output), "--levels", str(levels)])
    assert problem in capsys.readouterr().err
    assert not output.exists()


def test_byte_order_mark_is_not_part_of_a_level(tmp_path):
    (tmp_path / "levels.txt").write_text(CORRIDOR, "utf-8-sig")
    (row,) = read_rows(prepare(tmp_path / "rows.jsonl", 1, levels=tmp_path / "levels.txt"))
    assert row["level"] == CORRIDOR


def test_unreadable_file_and_too_small_room_are_reported(tmp_path, capsys):
    output = str(tmp_path / "rows.jsonl")
    (tmp_path / "latin.txt").write_bytes(b"; Caf\xe9\n" + CORRIDOR.encode())
    with pytest.raises(SystemExit, match="1"):
        run_prepare(prepare, ["--output", output, "--levels", str(tmp_path / "latin.txt")])
    assert "latin.txt: not UTF-8 text (byte 5). Save it as UTF-8." in capsys.readouterr().err
    with pytest.raises(SystemExit, match="1"):
        run_prepare(prepare, ["--output", output, "--levels", str(tmp_path / "none.txt")])
    assert "none.txt: cannot be read" in capsys.readouterr().err
    with pytest.raises(SystemExit, match="1"):
        run_prepare(prepare, ["--output", output, "--dim-room", "4", "4", "--num-boxes", "5"])
    assert "no level with 5 boxes" in capsys.readouterr().err
