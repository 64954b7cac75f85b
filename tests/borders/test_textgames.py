"""TextArena, GEM and skyrl-gym: games of the packages, won and lost by rollouts (`make borders-textgames`)."""

import asyncio
import json
import os
import re
import subprocess
from collections import deque
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from nemo_gym import EnvironmentFailed, InvalidTask
from nemo_gym.testing import FakeModel, make_server, reply, run
from resources_servers.textgames.app import TextGamesServer
from responses_api_agents.gymnasium_agent.app import GymnasiumAgent
from responses_api_agents.simple_agent.app import SimpleAgent

REPOSITORY = Path(__file__).parents[2]
HAS_ALL = "from importlib.util import find_spec; [find_spec(each).name for each in ('textarena', 'gem', 'skyrl_gym')]"
PYTHON = os.environ.get("NEMO_GYM_TEXTGAMES_PYTHON") or str(REPOSITORY / ".venv-textgames/bin/python")
WORDS = ["apple", "bread", "chair", "lemon", "table"]
START_S = 300.0
HANOI = ["A C", "A B", "C B", "A C", "B A", "B C", "A C"]
DATASET = [
    {"prompt": [{"role": "user", "content": "6 * 7?"}], "env_class": "gsm8k", "reward_spec": {"ground_truth": "42"}},
    {"prompt": [{"role": "user", "content": "6 + 7?"}], "env_class": "gsm8k", "reward_spec": {"ground_truth": "13"}},
]

pytestmark = pytest.mark.slow


class Player(FakeModel):
    """A model that chooses its moves by a policy: a function of the observations so far."""

    def __init__(self, policy):
        super().__init__([""])
        self._policy = policy

    def answer(self, request):
        self.requests.append(request)
        seen = [each["content"] for each in request["input"] if each.get("role") == "user"]
        return reply(self._policy(seen))


@pytest.fixture(scope="module", autouse=True)
def python():
    if (
        not Path(PYTHON).is_file()
        or subprocess.run([PYTHON, "-c", HAS_ALL], check=False, stderr=subprocess.DEVNULL).returncode
    ):
        pytest.skip("no Python with the libraries: run `make borders-textgames`, or set NEMO_GYM_TEXTGAMES_PYTHON")


@pytest.fixture
def nltk_data(tmp_path, monkeypatch):
    """Install five words and a tagger that calls them nouns, in place of NLTK's data."""
    words, tagger = tmp_path / "corpora" / "words", tmp_path / "taggers" / "averaged_perceptron_tagger_eng"
    for folder in (words, tagger):
        folder.mkdir(parents=True)
    for name in ("en", "en-basic", "README"):
        (words / name).write_text("\n".join(WORDS) + "\n")
    known = {"weights": {}, "tagdict": dict.fromkeys(WORDS, "NN"), "classes": ["NN"]}
    for name, content in known.items():
        (tagger / f"averaged_perceptron_tagger_eng.{name}.json").write_text(json.dumps(content))
    monkeypatch.setenv("NLTK_DATA", str(tmp_path))
    # The game would replace the words by a download.
    monkeypatch.setenv("https_proxy", "http://127.0.0.1:9")


@asynccontextmanager
async def playing(library):
    """Yield a server of the library. The import of a library takes seconds, so a test plays many games on it."""
    server = make_server(
        TextGamesServer, library=library, python=PYTHON, start_timeout_s=START_S, step_timeout_s=START_S
    )
    try:
        yield server
    finally:
        await server.library.close()


async def played(server, game, policy, **row):
    """Play a game with a list of moves, or with a policy. Return the graded row and what the model has seen."""
    moves = iter(policy) if isinstance(policy, list) else None
    model = Player((lambda _: next(moves, "")) if moves is not None else policy)
    place = {"type": "resources_servers", "name": server.config.name}
    agent = make_server(GymnasiumAgent, model=model, servers=[server], resources_server=place)
    graded = await run(agent, game=game, **row)
    texts = [item.content for item in graded.response.output if item.type == "message" and item.role == "user"]
    return graded, [text if isinstance(text, str) else text[0].text for text in texts]


def bisects(low, high, form):
    """Guess a number from the hints 'higher' and 'lower'."""

    def policy(seen):
        least, most = low, high
        for text in seen[1:]:
            guess = (least + most) // 2
            least, most = (guess + 1, most) if "higher" in text.split("number is")[-1] else (least, guess - 1)
        return form.format((least + most) // 2)

    return policy


def walks(seen):
    """Find the way over the frozen lake, from the last picture of it."""
    picture = [line for line in seen[-1].splitlines() if line.startswith("|")]
    grid = [[cell.strip() for cell in line.strip("|").split("|")] for line in picture]
    where = {cell: (r, c) for r, row in enumerate(grid) for c, cell in enumerate(row)}
    steps = {"up": (-1, 0), "down": (1, 0), "left": (0, -1), "right": (0, 1)}
    routes, visited = deque([(where["P"], [])]), {where["P"]}
    while routes:
        place, route = routes.popleft()
        if place == where["G"]:
            return f"[{route[0]}]"
        for name, (down, right) in steps.items():
            to = place[0] + down, place[1] + right
            on_board = 0 <= to[0] < len(grid) and 0 <= to[1] < len(grid[0])
            if on_board and to not in visited and grid[to[0]][to[1]] != "H":
                visited.add(to)
                routes.append((to, [*route, name]))
    raise AssertionError(f"no way: {seen[-1]}")


def balances(seen):
    """Leave the opponent at Nim a position whose sum without carry is 0, if possible."""
    piles = [int(each) for each in re.findall(r"pile \d: (\d+)", seen[-1])[-3:]]
    total = piles[0] ^ piles[1] ^ piles[2]
    for number, pile in enumerate(piles):
        if total and pile ^ total < pile:
            return f"[{number} {pile - (pile ^ total)}]"
    number = next(number for number, pile in enumerate(piles) if pile)
    return f"[{number} 1]"


def occupies(seen):
    """Take the best free square at tic-tac-toe: complete a line, or stop one, or else the first free of an order."""
    board = re.findall(r"(?:(?<=\| )|(?<=^ ))(\w)(?= |$)", seen[-1], re.MULTILINE)[-9:]
    lines = [(0, 1, 2), (3, 4, 5), (6, 7, 8), (0, 3, 6), (1, 4, 7), (2, 5, 8), (0, 4, 8), (2, 4, 6)]
    for mark in ("O", "X"):
        for line in lines:
            cells = [board[each] for each in line]
            if cells.count(mark) == 2 and (free := [each for each in line if board[each].isdigit()]):
                return f"[{free[0]}]"
    return f"[{next(each for each in (4, 0, 2, 6, 8, 1, 3, 5, 7) if board[each].isdigit())}]"


def sums(seen):
    """Add up the terms of a sum of reasoning-gym."""
    terms = re.findall(r"[+-]?\d+", seen[0].partition(": ")[2].replace(" ", ""))
    return rf"\boxed{{{sum(map(int, terms))}}}"


def deduces(seen):
    """Guess the first word at Wordle that fits all replies."""

    def reply_for(guess, secret):
        return ["G" if a == b else "Y" if a in secret else "X" for a, b in zip(guess, secret, strict=True)]

    left = list(WORDS)
    for text in seen[1:]:
        rows = [line.split() for line in text.splitlines() if re.fullmatch(r"(\w )*\w", line.strip())]
        word, marks = "".join(rows[-2]).lower(), rows[-1]
        left = [each for each in left if reply_for(word, each) == marks]
    return f"[{left[0]}]"


# Each game, and how to win it. The seeds of the games with another player are those in which the policy wins.
WON = [
    ("textarena", "TowerOfHanoi-v0", [f"[{each}]" for each in HANOI], {}),
    ("textarena", "GuessTheNumber-v0", bisects(1, 20, "I guess [{}]."), {"seed": 4}),
    ("textarena", "FrozenLake-v0", walks, {"seed": 2}),
    ("textarena", "Nim-v0", balances, {"seed": 1}),
    ("textarena", "ConnectFour-v0", ["[col 3]"] * 4, {"seed": 8}),
    ("textarena", "TicTacToe-v0", occupies, {"seed": 1}),
    ("gem", "game:TowerofHanoi-v0-easy", [rf"\boxed{{{each}}}" for each in HANOI], {}),
    ("gem", "game:GuessTheNumber-v0-hard", bisects(1, 50, r"\boxed{{{}}}"), {"seed": 2}),
    ("gem", "rg:chain_sum", sums, {"seed": 3}),
    ("skyrl_gym", "gsm8k", ["It is #### 42"], {"extras": {"reward_spec": {"ground_truth": "42"}}}),
    (
        "skyrl_gym",
        "gsm8k_multi_turn",
        ["I do not know.", "#### 42"],
        {"extras": {"reward_spec": {"ground_truth": "42"}, "max_turns": 3}},
    ),
]


@pytest.mark.parametrize("library", ["textarena", "gem", "skyrl_gym"])
async def test_games_of_the_package_are_won(library):
    async with playing(library) as server:
        for game, policy, row in (rest for name, *rest in WON if name == library):
            graded, seen = await played(server, game, policy, **row)
            assert (graded.reward, graded.terminated) == (1.0, True), (game, seen)
            # The same moves, in a new process, earn the same.
            moves = [item.text for item in graded.response.output if item.role == "assistant"]
            again, seen_again = await played(server, game, moves, **row)
            assert (again.reward, seen_again) == (graded.reward, seen)


async def test_wordle_is_won_with_the_words_of_nltk(nltk_data):
    async with playing("textarena") as server:
        graded, seen = await played(server, "Wordle-v0", deduces, seed=1)
        assert graded.reward == 1.0, seen


async def test_game_without_its_data_fails_with_the_command(tmp_path, monkeypatch):
    monkeypatch.setenv("NLTK_DATA", str(tmp_path))
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("https_proxy", "http://127.0.0.1:9")
    async with playing("textarena") as server:
        with pytest.raises(EnvironmentFailed, match=r"needs data of NLTK .* python -m nltk.downloader words"):
            await played(server, "Wordle-v0", [])


async def test_invalid_moves_and_limits_earn_the_games_own_reward():
    async with playing("textarena") as server:
        graded, seen = await played(server, "TicTacToe-v0", ["[4]", "[4]", "[99]"], seed=1)
        assert "attempted an invalid move" in seen[1]
        assert (graded.reward, graded.steps, graded.terminated) == (-1.0, 3, True)
        graded, _ = await played(server, "TowerOfHanoi-v0", ["[A C]", "[C C C]", ""])
        assert (graded.reward, graded.steps) == (0.0, 3)
        cycle = ["[A B]", "[B A]"] * 8
        graded, seen = await played(server, "TowerOfHanoi-v0", cycle)
        assert (graded.reward, graded.steps) == (0.0, 15)
        assert "turn limit" in seen[-1]
    async with playing("gem") as server:
        graded, _ = await played(server, "game:TowerofHanoi-v0-easy", ["I would rather not."])
        assert graded.reward == pytest.approx(-0.1)
        graded, _ = await played(server, "game:TowerofHanoi-v0-easy", [r"\boxed{B A}"] * 10)
        assert (graded.steps, graded.truncated) == (10, True)


async def test_agents_play_against_each_other():
    """Nim without a first move that wins. TextArena's rewards of both players are those of their roles."""
    async with playing("textarena") as server:
        place = {"type": "resources_servers", "name": server.config.name}
        seats = {
            name: make_server(SimpleAgent, name=name, model=Player(policy), servers=[server], resources_server=place)
            for name, policy in {"careless": lambda _: "[0 1]", "careful": balances}.items()
        }
        players = [{"type": "responses_api_agents", "name": name} for name in seats]
        agent = make_server(GymnasiumAgent, servers=[server, *seats.values()], resources_server=place, players=players)
        graded = await run(agent, game="Nim-v0", seed=1)
        assert (graded.reward, graded.terminated) == (-1.0, True)
        assert {name: part["reward"] for name, part in graded.roles.items()} == {"careless": -1.0, "careful": 1.0}
        moves = [item["content"] for item in graded.roles["careful"]["response"]["output"] if item["role"] == "user"]
        assert all("Player 0" in each for each in moves[:-1])
        with pytest.raises(InvalidTask, match="cannot be played by 2 players"):
            await run(agent, game="TowerOfHanoi-v0")


async def test_concurrent_games_do_not_change_each_other():
    games = [("Nim-v0", balances), ("TicTacToe-v0", occupies), ("FrozenLake-v0", walks)]
    asked = [(game, policy, seed) for seed in range(3) for game, policy in games]
    async with playing("textarena") as server:
        attempts = [played(server, game, policy, seed=seed) for game, policy, seed in asked]
        together = await asyncio.gather(*attempts)
        alone = [await played(server, game, policy, seed=seed) for game, policy, seed in asked]
    assert [each[1] for each in together] == [each[1] for each in alone]
    assert [each[0].reward for each in together] == [each[0].reward for each in alone]
    assert len({"".join(seen) for _, seen in alone[::3]}) > 1


async def test_other_players_find_legal_moves():
    """The model answers what the game shows first. The others never lose by an invalid move of theirs."""

    def first_shown(seen):
        return (re.findall(r"\[[^\[\]]+\]", seen[-1]) or ["[0]"])[0]

    games = ["KuhnPoker-v0", "ConnectFour-v0", "ThreePlayerTicTacToe-v0", "Othello-v0-tiny", "PigDice-v0-short"]
    async with playing("textarena") as server:
        for game in games:
            graded, seen = await played(server, game, first_shown, seed=2)
            assert graded.reward in (-1.0, 0.0, 1.0), game
            assert not re.search(r"Player [1-9] attempted an invalid move", "\n".join(seen)), game


NOT_PLAYABLE = [
    ("textarena", "NoGame-v0", {}, InvalidTask, "TextArena has no game 'NoGame-v0'"),
    ("textarena", "Nim-v0", {"players": 3}, InvalidTask, "cannot be played by 3 players"),
    ("textarena", "Nim-v0", {"env_kwargs": {"x": 1}}, InvalidTask, "cannot be created with"),
    ("textarena", "Debate-v0", {}, EnvironmentFailed, "OpenRouter API key not found"),
    ("gem", "game:Chess", {}, InvalidTask, "GEM has no environment"),
    ("gem", "math:GSM8K", {}, EnvironmentFailed, "No module named 'datasets'"),
    ("gem", "code:Taco8k", {}, InvalidTask, "outside a sandbox"),
    ("skyrl_gym", "chess", {}, InvalidTask, "skyrl-gym has no environment 'chess'. It has: aime, gsm8k"),
    ("skyrl_gym", "gsm8k", {}, InvalidTask, "reward_spec field is required"),
    ("skyrl_gym", "lcb", {}, InvalidTask, "outside a sandbox"),
]


@pytest.mark.parametrize("library", ["textarena", "gem", "skyrl_gym"])
async def test_game_that_cannot_be_played_fails_with_the_reason(library, monkeypatch):
    monkeypatch.delenv("OPENROUTER_API_KEY", raising=False)
    async with playing(library) as server:
        for game, row, kind, problem in (rest for name, *rest in NOT_PLAYABLE if name == library):
            with pytest.raises(kind, match=problem):
                await played(server, game, [], **row)


@pytest.mark.parametrize("place", ["textarena:TicTacToe-v0", "gem:rg:chain_sum", "skyrl-gym:gsm8k:rows.jsonl"])
def test_rows_are_made_run_and_checked(workplace, place):
    workplace.write("rows.jsonl", "".join(json.dumps(row) + "\n" for row in DATASET))
    finished = workplace.run(
        "ng", "eval", "run", "--from", place, "--limit", "2", "--model-type", "sample_model",
        "--output", "results/a.jsonl", TEXTGAMES_PYTHON=PYTHON, timeout_s=START_S,
    )  # fmt: skip
    assert finished.code == 0, finished.out + finished.err
    rollouts = [json.loads(line) for line in (workplace.folder / "results/a.jsonl").read_text().splitlines()]
    assert [row["seed"] for row in sorted(rollouts, key=lambda row: row["seed"])] == [0, 1]
    assert all(isinstance(row["reward"], float) for row in rollouts)


def test_environment_is_checked(workplace):
    place = "textarena:TowerOfHanoi-v0"
    checked = workplace.run("ng", "env", "check", "--from", place, TEXTGAMES_PYTHON=PYTHON, timeout_s=START_S)
    assert checked.code == 0, checked.out + checked.err
