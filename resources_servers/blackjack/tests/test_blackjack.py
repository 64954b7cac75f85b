"""The rules of the table, seeded hands, and the effect of the model's answers."""

from pathlib import Path

import pytest

from nemo_gym import run_prepare
from nemo_gym.jsonl import read_rows
from nemo_gym.testing import make_server, reply, rollout, serving
from resources_servers.blackjack.app import BlackjackServer
from resources_servers.blackjack.game import Hand, Outcome, Rules, best_play, is_natural, is_soft, value_of
from resources_servers.blackjack.oracle import asks_for_something, full_reward, solve
from resources_servers.blackjack.prepare import prepare

EXAMPLES = list(read_rows(Path(__file__).parents[1] / "data" / "example.jsonl"))


@pytest.fixture
def server():
    return make_server(BlackjackServer)


def test_hand_value_and_kind():
    cases = [
        ("2 3", 5, False, False),
        ("K Q", 20, False, False),
        ("A K", 21, True, True),
        ("A 6", 17, True, False),
        ("A A", 12, True, False),
        ("A K 9", 20, False, False),
        ("A A 10 10", 22, False, False),
        ("10 J A", 21, False, False),
        ("7 7 7", 21, False, False),
    ]
    wrong = []
    for hand, value, soft, natural in cases:
        cards = hand.split()
        if (found := (value_of(cards), is_soft(cards), is_natural(cards))) != (value, soft, natural):
            wrong.append((hand, value, soft, natural, found))
    assert wrong == []


def dealt(player, dealer, then="", **rules):
    """Return a hand of these cards, with `then` as the rest of the deck."""
    hand = Hand(0, Rules(**rules))
    hand.player, hand.dealer, hand._deck = player.split(), dealer.split(), then.split()[::-1]
    return hand


def test_higher_hand_wins_after_the_dealer_draws():
    cases = [
        ("K 9", "K 8", "", {}, Outcome.WON),
        ("K 8", "K 8", "", {}, Outcome.DRAWN),
        ("K 7", "K 8", "", {}, Outcome.LOST),
        ("K 2", "K 6", "9", {}, Outcome.WON),
        ("K 9", "K 2", "3 5", {}, Outcome.LOST),
        ("A K", "5 6", "10", {}, Outcome.WON),
        ("5 6 10", "A K", "", {}, Outcome.LOST),
        ("A K", "A Q", "", {}, Outcome.DRAWN),
        ("K 8", "A 6", "4", {}, Outcome.WON),
        ("K 8", "A 6", "4", {"dealer_hits_soft_17": True}, Outcome.LOST),
        ("K 8", "K 7", "4", {"dealer_hits_soft_17": True}, Outcome.WON),
    ]
    wrong = []
    for player, dealer, then, rules, outcome in cases:
        hand = dealt(player, dealer, then, **rules)
        hand.stand()
        if (found := hand.outcome) is not outcome:
            wrong.append((player, dealer, then, rules, outcome, found))
    assert wrong == []


def test_more_than_21_loses_immediately():
    hand = dealt("K 6", "K 6", "5 A")
    hand.hit()
    assert hand.outcome is None
    hand.hit()
    assert hand.outcome is Outcome.LOST


def test_deck_contains_every_card_equally_often():
    hand = Hand(3, Rules(decks=2))
    cards = [*hand.player, *hand.dealer, *hand._deck]
    assert len(cards) == 104
    assert {cards.count(rank) for rank in set(cards)} == {8}


def test_seed_determines_the_deck():
    assert Hand(1) == Hand(1)
    assert Hand(1)._deck == Hand(1)._deck != Hand(2)._deck


def test_best_play_is_optimal():
    for seed in range(200):
        _, best = best_play(seed)
        for hits in range(12):
            hand = Hand(seed)
            for _ in range(hits):
                if hand.outcome is None:
                    hand.hit()
            if hand.outcome is None:
                hand.stand()
            assert hand.outcome <= best


async def test_oracle_earns_the_best_possible_reward(server, tmp_path):
    rows = [*EXAMPLES, *read_rows(prepare(tmp_path / "rows.jsonl", 60, all_deals=True))]
    assert {full_reward(row) for row in rows} == {-1.0, 0.0, 1.0}
    for row in rows:
        async with rollout(server, **row) as attempt:
            graded = await attempt.verify(reply(*solve(row)))
            assert (graded.reward, graded.terminated) == (full_reward(row), True)
            silent = await attempt.verify(reply(""))
            assert silent.reward == 0.0
            assert asks_for_something(row) == (silent.reward < full_reward(row))


def test_prepare_skips_hands_that_cannot_be_won(tmp_path):
    rows = list(read_rows(prepare(tmp_path / "rows.jsonl", 40, seed=5)))
    assert len(rows) == 40
    assert {full_reward(row) for row in rows} == {1.0}
    assert min(row["seed"] for row in rows) >= 5


def test_command_writes_the_requested_number_of_rows(tmp_path):
    run_prepare(prepare, ["--output", str(tmp_path / "rows.jsonl"), "--count", "7", "--all-deals"])
    assert [row["seed"] for row in read_rows(tmp_path / "rows.jsonl")] == list(range(7))


def row(seed):
    return {"responses_create_params": {"input": []}, "seed": seed}


async def played(server, seed, *texts):
    """Play a hand and return the reply to the reset and to each turn."""
    async with serving(server) as client:
        replies = [(await client.post("/reset", json=row(seed))).json()]
        for text in texts:
            turn = {**row(seed), "response": reply(text).model_dump(mode="json")}
            replies.append((await client.post("/step", json=turn)).json())
        await client.post("/close")
        return replies


async def test_model_sees_its_cards_and_the_dealers_first(server):
    first, hit, stood = await played(server, 1, "hit", "Let us <answer>stand</answer>")
    hand = Hand(1)
    cards = " ".join(hand.player)
    assert first["observation"] == f"You hold {cards} (5). The dealer shows {hand.dealer[0]}. Hit or stand?"
    hand.hit()
    assert f"You hold {' '.join(hand.player)} ({value_of(hand.player)})." in hit["observation"]
    assert (hit["reward"], hit["terminated"]) == (0.0, False)
    assert stood["terminated"] is True
    assert stood["observation"].endswith(("You win.", "You lose.", "Nobody wins."))


async def test_bust_is_reported_and_loses(server):
    *_, last = await played(server, 10, "hit")
    assert (last["reward"], last["terminated"]) == (-1.0, True)
    assert last["observation"].endswith("too much. You lose.")


async def test_last_of_several_actions_counts(server):
    *_, last = await played(server, 9, "I will not hit, I stand.")
    assert (last["reward"], last["terminated"]) == (1.0, True)


async def test_natural_may_pay_more(server):
    assert is_natural(Hand(9).player)
    *_, last = await played(make_server(BlackjackServer, natural_reward=1.5), 9, "stand")
    assert last["reward"] == 1.5


async def test_three_consecutive_unreadable_answers_lose_the_hand(server):
    _, first, second, hit, *more = await played(server, 25, "hm", "", "hit", "what?", "eh", "no idea")
    for answer in (first, second):
        assert answer["observation"].startswith("That is neither hit nor stand. You hold ")
        assert (answer["reward"], answer["terminated"]) == (0.0, False)
    assert hit["terminated"] is False
    assert [(each["reward"], each["terminated"]) for each in more] == [(0.0, False), (0.0, False), (-1.0, True)]


async def test_concurrent_hands_do_not_interfere(server):
    async with serving(server) as one, serving(server) as other:
        for client, seed in ((one, 1), (other, 9)):
            await client.post("/reset", json=row(seed))
        for client, seed, word, reward in ((one, 1, "hit", 0.0), (other, 9, "stand", 1.0)):
            turn = {**row(seed), "response": reply(word).model_dump(mode="json")}
            assert (await client.post("/step", json=turn)).json()["reward"] == reward


async def test_row_without_a_seed_is_rejected(server):
    async with serving(server) as client:
        answer = await client.post("/reset", json={"responses_create_params": {"input": []}})
        assert (answer.status_code, "seed" in answer.text) == (422, True)
