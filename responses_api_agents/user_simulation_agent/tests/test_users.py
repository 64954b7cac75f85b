"""The scripted user and the lines of a dialogue."""

import pytest

from nemo_gym import InvalidTask
from responses_api_agents.user_simulation_agent.dialogue import Line, dialogue_of
from responses_api_agents.user_simulation_agent.users import Said, ScriptedUser, UserProfile

PROFILE = {
    "goal": "Book me a table.",
    "answers": [
        {"asked": ["time", "what hour"], "says": "At 19:30."},
        {"asked": ["guests", "how many"], "says": "Four of us."},
    ],
    "otherwise": "As you like.",
}


async def replies(profile, *heard):
    user = ScriptedUser(UserProfile.model_validate(profile))
    return [await user.speak([Line("user", "Hello."), Line("assistant", text)]) for text in heard]


async def test_scripted_user_answers_keywords():
    cases = [
        ("At what time?", "At 19:30."),
        ("At what TIME, please?", "At 19:30."),
        ("At what\n  hour would suit you? What  hour?", "At 19:30."),
        ("Please tell me the time.", "At 19:30."),
        ("What time, and for how many guests?", "At 19:30. Four of us."),
        ("How many, and at what time?", "At 19:30. Four of us."),
        ("Inside or outside?", "As you like."),
        ("Sometimes it is full, is it not?", "As you like."),
        ("室内ですか？", "As you like."),
        ("Done.", None),
        ("", None),
    ]
    wrong = [
        (heard, said, found)
        for heard, said in cases
        if (found := await replies(PROFILE, heard)) != [Said(said or "", is_satisfied=said is None)]
    ]
    assert wrong == []


async def test_question_is_answered_repeatedly_statement_once():
    said = await replies(PROFILE, "What time?", "What time?", "Booked for that time.")
    assert [each.text for each in said] == ["At 19:30.", "At 19:30.", ""]
    assert [each.is_satisfied for each in said] == [False, False, True]


async def test_script_continues_without_keyword():
    profile = {**PROFILE, "script": ["And by the window.", "Thank you."]}
    said = await replies(profile, "Noted.", "What time?", "Anything else?", "Inside?", "Done.")
    assert [each.text for each in said] == ["And by the window.", "At 19:30.", "Thank you.", "As you like.", ""]
    assert said[-1].is_satisfied


@pytest.mark.parametrize(
    ("profile", "opening"), [({"script": ["Hi.", "More."], "goal": "x"}, "Hi."), ({"goal": "A table!"}, "A table!")]
)
async def test_scripted_user_opens_with_script_or_goal(profile, opening):
    assert await ScriptedUser(UserProfile.model_validate(profile)).speak([]) == Said(opening, is_satisfied=False)


async def test_scripted_user_without_opening_fails():
    with pytest.raises(InvalidTask, match="neither a script nor a goal"):
        await ScriptedUser(UserProfile()).speak([])


@pytest.mark.parametrize(
    "profile",
    [
        {"anwsers": []},
        {"answers": [{"asked": [], "says": "x"}]},
        {"answers": [{"asked": ["x"]}]},
        {"answers": [{"asked": ["x", " "], "says": "x"}]},
        {"answers": [{"asked": ["\u200b"], "says": "x"}]},
        {"otherwise": ""},
    ],
)
def test_invalid_user_profile_is_rejected(profile):
    with pytest.raises(ValueError, match="UserProfile"):
        UserProfile.model_validate(profile)


def message(role, content, **more):
    return {"role": role, "content": content, **more}


def test_dialogue_contains_only_messages():
    given = [
        message("system", "Be brief."),
        message("user", "Hi."),
        message("user", [{"type": "input_text", "text": "A table."}]),
    ]
    said = [
        {"type": "reasoning", "id": "r", "summary": []},
        message("assistant", [{"type": "output_text", "text": "<think>which?</think>Let me look."}], type="message"),
        {"type": "function_call", "name": "look", "arguments": "{}", "call_id": "1"},
        {"type": "function_call_output", "call_id": "1", "output": "free"},
        message("assistant", [{"type": "refusal", "refusal": "no"}, {"type": "output_text", "text": "When?"}]),
        message("user", "At seven.", type="message"),
    ]
    assert dialogue_of(given, said) == [
        Line("user", "Hi.\nA table."),
        Line("assistant", "Let me look.\nWhen?"),
        Line("user", "At seven."),
    ]
    assert dialogue_of("Hi.") == [Line("user", "Hi.")]
    assert dialogue_of([]) == []
