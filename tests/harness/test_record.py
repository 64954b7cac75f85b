"""The graded record of a program: its claims, and the choice among its conversations."""

import orjson
import pytest

from nemo_gym.errors import AgentFailed
from nemo_gym.harness import ClaimRules, Exchange
from nemo_gym.harness.conversations import Conversations
from nemo_gym.harness.record import record_of
from nemo_gym.harness.tool_results import results_of
from nemo_gym.testing import reply
from tests.each_case import each_case

PATH, TASK, TOOL = "/v1/responses", "What is the weather in Porto?", "get_weather"
SHELL = {"type": "function", "name": "shell", "parameters": {"type": "object"}}


def user(text):
    return {"role": "user", "content": text}


def says(text):
    return {"role": "assistant", "content": text}


def calls(name, call_id="c1", **arguments):
    return {"type": "function_call", "call_id": call_id, "name": name, "arguments": orjson.dumps(arguments).decode()}


def gives(output, call_id="c1"):
    return {"type": "function_call_output", "call_id": call_id, "output": output}


class Program:
    """A program, whose model and tools answer as its author says."""

    def __init__(self):
        self.conversations = Conversations()
        self.results = []

    def ask(self, items, answer, *, model="policy", answered=None, **fields):
        """Send these items, get this answer, and return the items of the answer."""
        output = [answer] if isinstance(answer, dict) else reply(answer).model_dump(mode="json")["output"]
        body = {"model": model, "input": items, **fields}
        answered = len(self.conversations.calls) if answered is None else answered
        said = {**reply("").model_dump(mode="json"), "id": f"resp_{answered}", "output": output}
        exchange = Exchange.of(PATH, orjson.dumps(body), orjson.dumps(said), "application/json")
        self.conversations.add(exchange, answered)
        return output

    def mcp(self, text, name=TOOL, **arguments):
        """Call a tool of the environment, which answers with this text."""
        request = {"jsonrpc": "2.0", "id": 7, "method": "tools/call", "params": {"name": name, "arguments": arguments}}
        answer = {"jsonrpc": "2.0", "id": 7, "result": {"content": [{"type": "text", "text": text}]}}
        self.results += results_of(orjson.dumps(request), orjson.dumps(answer), len(self.conversations.calls))

    def record(self, which="first"):
        graded = self.conversations.graded(which, task=TASK, model_name="policy")
        return record_of(graded, self.results, [TOOL])

    def shown(self, which="first"):
        """Return the record in short: the model's answers, the tools' outputs, and claims in brackets."""
        return [short(item) for item in self.record(which).output]


def short(item):
    kind = item["type"]
    if kind == "function_call":
        text = f"{item['name']}({item['arguments']})"
    elif kind == "function_call_output":
        text = f"-> {item['output']}"
    else:
        content = item["content"]
        text = content if isinstance(content, str) else "".join(part["text"] for part in content)
    claim = item.get("claimed_by_program")
    assert claim is None or kind == "function_call_output" or item["role"] in ("user", "system", "developer")
    return text if claim is None else f"[{claim}] {text}"


def test_invented_history_is_not_graded():
    program = Program()
    invented = [calls(TOOL, city="Porto"), gives("sunny"), says("It is sunny.")]
    program.ask([user(TASK), *invented, user("Is that all?")], "Yes.")
    record = program.record()
    assert [short(item) for item in record.output][1:] == [
        "[function_call_output] sunny", "[assistant] It is sunny.", "[user] Is that all?", "Yes.",
    ]  # fmt: skip
    assert record.output[0]["claimed_by_program"] == "function_call"
    assert {item["role"] for item in record.output[:-1]} == {"user"}
    assert (record.claimed_answers, record.claimed_observations) == (3, 1)


def test_results_of_the_environment_are_the_record():
    program = Program()
    asked = program.ask([user(TASK)], calls(TOOL, city="Porto"))
    program.mcp("sunny", city="Porto")
    program.ask([user(TASK), *asked, gives("sunny")], "It is sunny.")
    record = program.record()
    assert [short(item) for item in record.output] == ['get_weather({"city":"Porto"})', "-> sunny", "It is sunny."]
    assert (record.claimed_answers, record.claimed_observations) == (0, 0)


@each_case(
    ("called", "shown", "record"),
    [
        # Programs wrap the texts of results, rename tools and complete arguments.
        ({"city": "Porto"}, '{"type":"text","text":"sunny","annotations":null}', ["-> sunny"]),
        ({"city": "Porto"}, [{"type": "input_text", "text": "sunny"}], ["-> sunny"]),
        ({"city": "Porto", "unit": "C"}, " sunny\n", ["-> sunny"]),
        # The real result replaces an edited one.
        ({"city": "Porto"}, "rainy", ["-> sunny", "[function_call_output] rainy"]),
        ({"city": "Porto"}, '{"text":"sunny","more":{"text":"and 42 degrees"}}', ["-> sunny", None]),
        # Results of other calls, and invented ones, are claims.
        ({"city": "Faro"}, "sunny", ["[function_call_output] sunny"]),
        (None, "sunny", ["[function_call_output] sunny"]),
    ],
)
@pytest.mark.parametrize("name", [TOOL, f"mcp__environment__{TOOL}", f"environment.{TOOL}"])
def test_results_are_compared_with_the_environments(called, shown, record, name):
    program = Program()
    asked = program.ask([user(TASK)], calls(name, city="Porto"))
    if called is not None:
        program.mcp("sunny", **called)
    program.ask([user(TASK), *asked, gives(shown)], "Done.")
    found = program.shown()[1:-1]
    assert [each if wanted else None for each, wanted in zip(found, record, strict=True)] == record


def test_default_values_of_arguments_are_not_claims():
    # Claude Code writes the defaults of its tools into the history, and changes the order.
    program = Program()
    [edit] = program.ask([user(TASK)], calls("Edit", file_path="a.py", old_string="-", new_string="+"))
    shown = calls("Edit", replace_all=False, file_path="a.py", old_string="-", new_string="+")
    program.ask([user(TASK), shown, gives("edited")], "Done.")
    record = program.record()
    assert record.output[0] == edit
    assert [short(item) for item in record.output[1:]] == ["[function_call_output] -> edited", "Done."]
    assert (record.claimed_answers, record.claimed_observations) == (0, 1)


def test_tools_of_the_environment_have_its_own_names():
    # Claude Code, OpenCode and Qwen Code put the name of the MCP server before the name of a tool.
    program = Program()
    asked = program.ask([user(TASK)], calls(f"mcp__environment__{TOOL}", city="Porto"))
    program.mcp("sunny", city="Porto")
    asked += program.ask([user(TASK), *asked, gives("sunny")], calls("mcp__other__search", "c2"))
    program.ask([user(TASK), asked[0], gives("sunny"), asked[1], gives("none", "c2")], "Done.")
    assert [item.get("name") for item in program.record().output] == [TOOL, None, "mcp__other__search", None, None]
    assert program.record().claimed_answers == 0


def test_other_values_of_arguments_are_claims():
    program = Program()
    program.ask([user(TASK)], calls("Edit", file_path="a.py"))
    program.ask([user(TASK), calls("Edit", file_path="a.py", replace_all=True), gives("edited")], "Done.")
    assert program.record().claimed_answers == 1


def test_result_counts_once():
    program = Program()
    first = program.ask([user(TASK)], calls(TOOL, city="Porto"))
    program.mcp("sunny", city="Porto")
    history = [user(TASK), *first, gives("sunny")]
    second = program.ask(history, calls(TOOL, "c2", city="Porto"))
    program.ask([*history, *second, gives("sunny", "c2")], "Done.")
    assert program.shown()[1::2] == ["-> sunny", "[function_call_output] sunny"]
    assert program.record().claimed_answers == 1


def test_result_that_the_model_never_saw_is_recorded():
    program = Program()
    program.ask([user(TASK)], calls(TOOL, city="Porto"))
    program.mcp("sunny", city="Porto")
    assert program.shown()[-1] == "-> sunny"


def test_calls_with_the_same_id_keep_their_results():
    program = Program()
    history = [user(TASK)]
    for city, sky in (("Porto", "sunny"), ("Faro", "rainy")):
        history += program.ask(history, calls(TOOL, city=city))
        program.mcp(sky, city=city)
        history.append(gives(sky))
    program.ask([*history, gives("windy")], "Done.")
    assert program.shown() == [
        'get_weather({"city":"Porto"})', "-> sunny", 'get_weather({"city":"Faro"})', "-> rainy",
        "[function_call_output] windy", "Done.",
    ]  # fmt: skip


def shell_call(command):
    return {"id": "c1", "type": "function", "function": {"name": "shell", "arguments": orjson.dumps(command).decode()}}


CHAT = "/v1/chat/completions", [
    {"role": "assistant", "content": "<think>Hm.</think>Look.", "tool_calls": [shell_call({"c": "ls", "n": 1})]},
    [
        {"role": "assistant", "content": " Look.", "tool_calls": [shell_call({"n": 1, "c": "ls"})]},
        {"role": "tool", "tool_call_id": "c1", "content": [{"type": "text", "text": "a.txt"}]},
        {"role": "user", "content": "note"},
    ],
    {"role": "assistant", "content": "Done."},
]  # fmt: skip
USED = {"type": "tool_use", "id": "c1", "name": "shell", "input": {"c": "ls", "n": 1}}
MESSAGES = "/v1/messages", [
    {"content": [{"type": "thinking", "thinking": "Hm.", "signature": "s"}, {"type": "text", "text": "Look."}, USED]},
    [
        {"role": "assistant", "content": [{"type": "text", "text": "Look."}, {**USED, "cache_control": None}]},
        {"role": "user", "content": [
            {"type": "tool_result", "tool_use_id": "c1", "content": [{"type": "text", "text": "a.txt"}]},
            {"type": "text", "text": "note"},
        ]},
    ],
    {"content": [{"type": "text", "text": "Done."}]},
]  # fmt: skip


@each_case(("path", "said"), [CHAT, MESSAGES])
def test_answers_are_recognized_in_each_dialect(path, said):
    conversations = Conversations()
    first, added, second = said
    task = user([{"type": "text", "text": TASK}])
    for answered, (messages, answer) in enumerate([([task], first), ([task, *added], second)]):
        body = {"choices": [{"message": answer, "finish_reason": "stop"}]} if "role" in answer else answer
        request = orjson.dumps({"model": "policy", "messages": messages, "system": f"header {answered}"})
        conversations.add(Exchange.of(path, request, orjson.dumps(body), "application/json"), answered)
    record = record_of(conversations.graded("first", task=TASK, model_name="policy"), [], [])
    assert [item["type"] for item in record.output] == [
        "reasoning", "message", "function_call", "function_call_output", "message", "message",
    ]  # fmt: skip
    assert (short(record.output[1]), short(record.output[4]), short(record.output[5])) == (
        "Look.", "[user] note", "Done.",
    )  # fmt: skip
    assert (record.claimed_answers, record.claimed_observations) == (0, 2)


@each_case("depth", [50, 90, 300, 1000])
def test_deep_values_do_not_break_the_record(depth):
    deep = "[" * depth + "]" * depth
    program = Program()
    asked = program.ask([user(TASK)], {**calls(TOOL), "arguments": f'{{"city": {deep}}}'})
    program.mcp("sunny", city="Porto")
    program.ask([user(TASK), *asked, gives(f'{{"text": {deep}}}')], "Done.")
    assert program.shown()[1:] == [f'[function_call_output] {{"text": {deep}}}', "Done."]


def test_program_may_go_back_to_an_earlier_answer():
    program = Program()
    first = program.ask([user(TASK)], "look")
    program.ask([user(TASK), *first, user("seen 0")], "I am lost.")
    program.ask([user(TASK), *first, user("seen 1")], "Done.")
    assert program.shown() == ["look", "[user] seen 1", "Done."]


def test_unreadable_side_call_is_ignored():
    program = Program()
    program.ask([user(TASK)], "Done.")
    program.ask([{"type": "nonsense"}], "A title")
    assert program.shown() == ["Done."]


def test_outputs_of_other_tools_keep_their_type():
    program = Program()
    asked = program.ask([user(TASK)], calls("shell", command="ls"))
    program.ask([user(TASK), *asked, gives("a.txt")], "Done.")
    record = program.record()
    assert record.output[1] == {**gives("a.txt"), "claimed_by_program": "function_call_output"}
    assert (record.claimed_answers, record.claimed_observations) == (0, 1)


def test_outputs_belong_to_calls_although_ids_differ():
    program = Program()
    asked = program.ask([user(TASK)], calls("shell", command="ls"))
    renamed = [{**asked[0], "call_id": "own"}, gives("a.txt", "own")]
    program.ask([user(TASK), *renamed], "Done.")
    assert program.record().output[1]["call_id"] == "c1"


def text_loop(program, rounds, *, keeps_answers=True, is_one_message=False):
    history, text = [user(TASK)], TASK
    for number in range(rounds):
        items = [user(text)] if is_one_message else history
        said = program.ask(list(items), f"look {number}")
        history += [*(said if keeps_answers else ()), user(f"seen {number}")]
        text += f"\nlook {number}\nseen {number}"
    program.ask([user(text)] if is_one_message else history, "Done.")


@each_case(
    ("form", "seen"),
    [
        ({}, "seen"),
        ({"keeps_answers": False}, "seen"),
        ({"is_one_message": True}, "\nlook {}\nseen"),
    ],
)
def test_answers_of_text_loops_stay_in_order(form, seen):
    program = Program()
    text_loop(program, 3, **form)
    between = [[f"look {n}", f"[user] {seen.format(n)} {n}"] for n in range(3)]
    assert program.shown() == [*(each for pair in between for each in pair), "Done."]
    assert program.record().claimed_answers == 0


def test_same_answers_in_a_row_are_all_kept():
    program = Program()
    history = [user(TASK)]
    for _ in range(3):
        history += [*program.ask(list(history), "look"), user("nothing")]
    program.ask(history, "Done.")
    assert program.shown() == [*["look", "[user] nothing"] * 3, "Done."]


def test_edited_answers_do_not_replace_the_real_ones():
    program = Program()
    program.ask([user(TASK)], "I will delete the files.")
    program.ask([user(TASK), says("I will look."), user("Go on.")], "Done.")
    assert program.shown() == ["I will delete the files.", "[assistant] I will look.", "[user] Go on.", "Done."]


def test_edited_calls_do_not_replace_the_real_ones():
    program = Program()
    asked = program.ask([user(TASK)], calls("shell", command="rm -r /"))
    edited = {**asked[0], "arguments": '{"command": "ls"}'}
    program.ask([user(TASK), edited, gives("a.txt")], "Done.")
    shown = program.shown()
    assert shown[0] == 'shell({"command":"rm -r /"})'
    assert any("ls" in each and each.startswith("[function_call]") for each in shown)
    assert program.record().claimed_answers == 1


def test_reformatted_answers_are_recognized():
    program = Program()
    asked = program.ask([user(TASK)], calls("shell", command="ls", all=True))
    copy = {**asked[0], "arguments": '{"all": true, "command": "ls"}', "id": "other"}
    said = program.ask([user(TASK), copy, gives("a.txt")], " I see.\n")
    assert said
    program.ask([user(TASK), copy, gives("a.txt"), says("I see."), user("So?")], "Done.")
    record = program.record()
    assert record.claimed_answers == 0
    assert len(record.output) == 5


def test_last_side_conversation_is_not_graded():
    program = Program()
    text_loop(program, 1)
    for _ in range(5):
        program.ask([user("Write a title.")], "Weather")
    assert program.shown()[-1] == "Done."


def test_longer_copy_of_the_task_is_not_graded():
    program = Program()
    program.ask([user(TASK)], "I do not know.")
    history = [user(f"Hello. {TASK}")]
    for number in range(4):
        history += [*program.ask(list(history), f"It is sunny {number}."), user("Sure?")]
    assert program.shown() == ["I do not know."]


@each_case(
    "side",
    [
        {"items": [user("quota")]},
        {"items": [user(f"Write a title for: {TASK}")], "model": "small"},
        {"items": [user(f"Write a title for: {TASK}")]},
    ],
)
def test_earlier_side_conversations_are_not_graded(side):
    program = Program()
    program.ask(side.pop("items"), "Weather", **side)
    asked = program.ask([user(TASK)], calls("shell", command="ls"), answered=0, tools=[SHELL])
    program.ask([user(TASK), *asked, gives("a")], "Done.", tools=[SHELL])
    assert program.shown()[-1] == "Done."
    assert len(program.shown()) == 3


def test_sub_agents_are_side_conversations():
    program = Program()
    asked = program.ask([user(TASK)], calls("agent", about="Porto"))
    history = [user("Find out about Porto.")]
    for number in range(5):
        history += [*program.ask(list(history), f"found {number}"), user("Go on.")]
    program.ask([user(TASK), *asked, gives("found 4")], "Done.")
    assert program.shown() == ['agent({"about":"Porto"})', "[function_call_output] -> found 4", "Done."]


def test_parallel_conversations_are_not_mixed():
    program = Program()
    main, side = [user(TASK)], [user("Something else")]
    for number in range(3):
        answered = len(program.conversations.calls)
        one = program.ask(list(main), f"main {number}", answered=answered)
        two = program.ask(list(side), f"side {number}", answered=answered)
        main += [*one, user("on")]
        side += [*two, user("on")]
    assert program.shown() == ["main 0", "[user] on", "main 1", "[user] on", "main 2"]


def test_replay_of_another_conversation_is_a_claim():
    program = Program()
    side = [user("Say that it is sunny.")]
    sunny = program.ask(side, "It is sunny.")
    program.ask([user(TASK)], "I do not know.")
    program.ask([user(TASK), *sunny, user("Sure?")], "Yes.")
    assert program.shown() == ["I do not know.", "[assistant] It is sunny.", "[user] Sure?", "Yes."]


@each_case(
    ("summary", "fields"),
    [
        ([user(TASK), user("So far: I looked around.")], {}),
        ([user(f"{TASK}\nSo far: I looked around.")], {}),
        ([user("The summary is: I looked around in Porto. Go on.")], {}),
        ([user("This session continues another one.")], {"id": "cut"}),
        ([user("The summary: 'I looked around in Porto.'")], {"tools": [SHELL]}),
    ],
)
def test_shortened_histories_keep_the_record_whole(summary, fields):
    cut = fields.pop("id", None)
    program = Program()
    first = program.ask([user(TASK)], "look 0", **fields)
    history = [user(TASK), *first, user("seen 0")]
    second = program.ask([*history, user("Summarize.")], "I looked around in Porto.", **fields)
    if cut:
        summary = [*summary, *second, user("Go on.")]
    third = program.ask(summary, "look 1", **fields)
    program.ask([*summary, *third, user("seen 1")], "Done.", **fields)
    shown = program.shown()
    said = ["look 0", "I looked around in Porto.", "look 1", "Done."]
    assert [each for each in shown if not each.startswith("[")] == said
    assert program.record().claimed_answers == 0


def test_dropped_turns_stay_in_the_record():
    program = Program()
    history = []
    for number in range(6):
        said = program.ask([user(TASK), *history[-4:]], f"look {number}")
        history += [*said, user(f"seen {number}")]
    shown = program.shown()
    assert [each for each in shown if each.startswith("look")] == [f"look {number}" for number in range(6)]
    assert [each for each in shown if "seen" in each] == [f"[user] seen {number}" for number in range(5)]


def test_repeated_request_replaces_its_answer():
    program = Program()
    program.ask([user(TASK)], "{broken")
    said = program.ask([user(TASK)], "look")
    program.ask([user(TASK), *said, user("seen")], "Done.")
    assert program.shown() == ["look", "[user] seen", "Done."]


def test_start_from_the_beginning_does_not_hide_answers():
    program = Program()
    text_loop(program, 1)
    program.ask([user(TASK)], "It is sunny.")
    assert program.shown() == ["look 0", "[user] seen 0", "Done.", "It is sunny."]


def test_previous_response_continues_a_conversation():
    program = Program()
    program.ask([user(TASK)], "look")
    program.ask([user("seen")], "Done.", previous_response_id="resp_0")
    assert program.shown() == ["look", "[user] seen", "Done."]


def test_claimed_tokens_are_dropped():
    tokens = {"prompt_token_ids": [1], "generation_token_ids": [2], "generation_log_probs": [-0.1]}
    program = Program()
    program.ask([user(TASK), {**says("42"), **tokens}, {**user("More."), **tokens}], "Done.")
    assert not any(tokens.keys() & item.keys() for item in program.record().output)


def test_last_conversation_can_be_graded():
    program = Program()
    program.ask([user(TASK)], "A draft.")
    program.ask([user("Improve: A draft.")], "A text.", instructions="You are an editor.")
    assert program.shown() == ["A draft."]
    assert program.shown("last") == ["A text."]


@each_case(
    ("rules", "masked", "failed"),
    [
        (ClaimRules(), None, None),
        (ClaimRules(answers="mask"), "1 answers", None),
        (ClaimRules(observations="mask"), "1 messages", None),
        (ClaimRules(answers="fail"), None, "1 answers"),
        (ClaimRules(answers="mask", observations="fail"), None, "1 messages"),
    ],
)
def test_claims_mask_or_fail_a_rollout(rules, masked, failed):
    program = Program()
    program.ask([user(TASK), says("42"), user("Sure?")], "Yes.")
    if failed:
        with pytest.raises(AgentFailed, match=f"claimed {failed}.*did not pass through the gateway"):
            rules.mask_reason(program.record())
    else:
        reason = rules.mask_reason(program.record())
        assert (reason and masked in reason) == (masked and True)
