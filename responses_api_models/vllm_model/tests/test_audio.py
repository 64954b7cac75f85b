"""Audio in a request's metadata, over real HTTP to a real endpoint."""

import json
from base64 import b64encode

import httpx
import pytest
from pydantic import ValidationError

from nemo_gym.testing import make_server, on_a_port
from responses_api_models.vllm_model.app import VLLMModel
from responses_api_models.vllm_model.audio import LARGEST_BYTES

WAV, MP3, FLAC = b"RIFF\x24\x00\x00\x00WAVEfmt ", b"ID3\x03\x00 sound", b"fLaC\x00 sound"
QUESTION = {"type": "text", "text": "Who speaks?"}


def encoded(data):
    return b64encode(data).decode()


def standard(data, name):
    return {"type": "input_audio", "input_audio": {"data": encoded(data), "format": name}}


HEARD = {
    "wav": standard(WAV, "wav"),
    "mp3": standard(MP3, "mp3"),
    "flac": {"type": "audio_url", "audio_url": {"url": f"data:audio/flac;base64,{encoded(FLAC)}"}},
}


@pytest.fixture
def folder(tmp_path):
    """A folder with a recording of each format, next to one that requests may not name."""
    inside = tmp_path / "recordings"
    (inside / "more").mkdir(parents=True)
    for name, data in (("a.wav", WAV), ("b.MP3", MP3), ("more/c.flac", FLAC), ("empty.wav", b""), ("a.txt", b"text")):
        (inside / name).write_bytes(data)
    (tmp_path / "secret.wav").write_bytes(WAV)
    (inside / "link.wav").symlink_to(tmp_path / "secret.wav")
    (inside / "outside").symlink_to(tmp_path)
    (inside / "loop.wav").symlink_to("loop.wav")
    (inside / "folder.wav").mkdir()
    with (inside / "large.wav").open("wb") as file:
        file.truncate(LARGEST_BYTES + 1)
    with (inside / "half.wav").open("wb") as file:
        file.truncate(LARGEST_BYTES // 2 + 10)
    return inside


@pytest.fixture
async def ask(endpoint):
    """Return a function that sends bodies to a fresh server with these settings, and returns the replies."""

    async def answers(bodies, *, route="/v1/responses", **settings):
        server = make_server(VLLMModel, base_url=f"{endpoint}/v1", api_key="k", model="echo", **settings)
        async with on_a_port(server) as url, httpx.AsyncClient(base_url=url, verify=False) as client:
            return [await client.post(route, json=body) for body in bodies]

    return answers


def contents(seen):
    """Return the content of the messages that reached the endpoint, by request."""
    return [[message["content"] for message in request["body"]["messages"]] for request in seen()]


async def test_audio_joins_the_last_user_message(ask, seen, folder):
    metadata = {
        "audio_data": f"data:audio/x-wav;base64,{encoded(WAV)}",
        "audio_path": "b.MP3",
        "audio_paths": json.dumps(["more/c.flac", "a.wav"]),
        "note": "stays here",
    }
    said = [
        {"role": "user", "content": "Listen."},
        {"role": "assistant", "content": "Yes?"},
        {"role": "user", "content": "Who speaks?"},
        {"role": "assistant", "content": "Wait."},
    ]
    (response,) = await ask([{"input": said, "metadata": metadata}], audio_root=str(folder))
    (completion,) = await ask(
        [{"messages": said, "metadata": metadata}], audio_root=str(folder), route="/v1/chat/completions"
    )
    assert (response.status_code, completion.status_code) == (200, 200)
    expected = [QUESTION, HEARD["wav"], HEARD["mp3"], HEARD["flac"], HEARD["wav"]]
    assert contents(seen) == [["Listen.", "Yes?", expected, "Wait."]] * 2
    assert not {"metadata", "note", "audio_root"} & {key for request in seen() for key in request["body"]}


async def test_audio_stays_in_the_question_after_a_tool_has_shown_an_image(ask, seen):
    call = {"type": "function_call", "call_id": "c", "name": "zoom", "arguments": "{}"}
    output = [{"type": "input_image", "image_url": "data:image/png;base64,AAAA"}]
    items = [
        {"role": "user", "content": "Who speaks?"}, call,
        {"type": "function_call_output", "call_id": "c", "output": output},
    ]  # fmt: skip
    (answer,) = await ask([{"input": items, "metadata": {"audio_data": encoded(WAV)}}])
    assert answer.status_code == 200
    ((question, _, _, image),) = contents(seen)
    assert question == [QUESTION, HEARD["wav"]]
    assert [part["type"] for part in image] == ["text", "image_url"]


async def test_audio_joins_a_question_directly_after_a_tool(ask, seen):
    call = {"type": "function_call", "call_id": "c", "name": "zoom", "arguments": "{}"}
    output = {"type": "function_call_output", "call_id": "c", "output": "zoomed"}
    items = [call, output, {"role": "user", "content": "Who speaks?"}]
    metadata = {"audio_data": encoded(WAV)}
    bodies = [
        {"input": [*first, *items], "metadata": metadata} for first in ([{"role": "user", "content": "Zoom in."}], [])
    ]
    assert [answer.status_code for answer in await ask(bodies)] == [200, 200]
    assert contents(seen) == [
        ["Zoom in.", None, "zoomed", [QUESTION, HEARD["wav"]]],
        [None, "zoomed", [QUESTION, HEARD["wav"]]],
    ]


async def test_audio_follows_the_parts_of_a_message(ask, seen):
    parts = [{"type": "input_text", "text": "Who speaks?"}, HEARD["mp3"]]
    bodies = [
        {"input": [{"role": "user", "content": content}], "metadata": {"audio_data": encoded(WAV)}}
        for content in (parts, [], "")
    ]
    assert [answer.status_code for answer in await ask(bodies)] == [200, 200, 200]
    assert contents(seen) == [[[QUESTION, HEARD["mp3"], HEARD["wav"]]], [[HEARD["wav"]]], [[HEARD["wav"]]]]


async def test_plain_base64_is_recognised_by_its_start(ask, seen):
    bodies = [{"input": "Who speaks?", "metadata": {"audio_data": encoded(data)}} for data in (WAV, MP3, FLAC)]
    assert [answer.status_code for answer in await ask(bodies)] == [200] * 3
    assert contents(seen) == [[[QUESTION, HEARD[name]]] for name in ("wav", "mp3", "flac")]


WRONG = [
    ({"audio_path": "../secret.wav"}, "audio_path: '../secret.wav' must be a path below audio_root"),
    ({"audio_path": "more/../a.wav"}, "audio_path: 'more/../a.wav' must be a path below audio_root"),
    ({"audio_path": "/etc/secret.wav"}, "audio_path: '/etc/secret.wav' must be a path below audio_root"),
    ({"audio_path": "link.wav"}, "audio_path: 'link.wav' leads outside audio_root through a link"),
    ({"audio_path": "outside/secret.wav"}, "audio_path: 'outside/secret.wav' leads outside audio_root through a link"),
    ({"audio_path": "loop.wav"}, "audio_path: file 'loop.wav' not found in audio_root"),
    ({"audio_path": "no\0.wav"}, "in audio_root cannot be read"),
    ({"audio_path": "folder.wav"}, "file 'folder.wav' not found in audio_root"),
    ({"audio_path": "missing.wav"}, "file 'missing.wav' not found in audio_root"),
    ({"audio_path": ""}, "'' must end in one of .wav, .mp3, .flac. Convert the file."),
    ({"audio_path": "a.txt"}, "'a.txt' must end in one of .wav, .mp3, .flac. Convert the file."),
    ({"audio_path": "empty.wav"}, "'empty.wav' is empty"),
    ({"audio_path": "large.wav"}, f"'large.wav' has {LARGEST_BYTES + 1} bytes, more than {LARGEST_BYTES}"),
    ({"audio_paths": '["half.wav", "half.wav"]'}, f"the audio has more than {LARGEST_BYTES} bytes"),
    ({"audio_paths": '["a.wav", "missing.wav"]'}, "audio_paths: file 'missing.wav' not found in audio_root"),
    ({"audio_paths": "a.wav"}, "audio_paths must be a JSON list of paths"),
    ({"audio_paths": '["a.wav", 1]'}, "audio_paths must be a JSON list of paths"),
    ({"audio_paths": "[" * 5000}, "audio_paths must be a JSON list of paths"),
    ({"audio_data": "not base64!"}, "audio_data is neither base64 nor a data URL"),
    ({"audio_data": "https://example.org/a.wav"}, "audio_data is neither base64 nor a data URL"),
    ({"audio_data": f"data:text/plain;base64,{encoded(WAV)}"}, "audio_data is neither base64 nor a data URL"),
    ({"audio_data": f"data:audio/midi;base64,{encoded(WAV)}"}, "audio_data is not WAV, MP3 or FLAC"),
    ({"audio_data": encoded(b"MThd")}, "audio_data is not WAV, MP3 or FLAC"),
    ({"audio_data": ""}, "audio_data is empty"),
    ({"audio_data": "data:audio/wav;base64,"}, "audio_data is empty"),
    ({"audio_data": "A" * (LARGEST_BYTES // 3 * 4 + 8)}, f"more than {LARGEST_BYTES}"),
]


async def test_absolute_path_inside_is_rejected_too(ask, seen, folder):
    (answer,) = await ask(
        [{"input": "Who?", "metadata": {"audio_path": str(folder / "a.wav")}}], audio_root=str(folder)
    )
    assert (answer.status_code, "without a leading '/' or '..'" in answer.json()["detail"]) == (422, True)
    assert seen() == []


async def test_unusable_audio_is_an_invalid_task(ask, seen, folder):
    replies = await ask([{"input": "Who?", "metadata": metadata} for metadata, _ in WRONG], audio_root=str(folder))
    problems = [(reply.status_code, reply.json()["failure_class"]) for reply in replies]
    assert problems == [(422, "invalid_task")] * len(WRONG)
    details = [(reply.json()["detail"], problem) for reply, (_, problem) in zip(replies, WRONG, strict=True)]
    assert [each for each in details if each[1] not in each[0]] == []
    assert seen() == []


async def test_paths_need_the_key_audio_root(ask, seen):
    metadata = ({"audio_path": "a.wav"}, {"audio_paths": '["a.wav"]'})
    for answer in await ask([{"input": "Who?", "metadata": each} for each in metadata]):
        assert answer.status_code == 422
        assert (
            "this server does not read files. Set its 'audio_root' to the folder that holds them"
            in answer.json()["detail"]
        )
    assert seen() == []


async def test_audio_needs_a_user_message(ask, seen):
    body = {"input": [{"role": "system", "content": "Be brief."}], "metadata": {"audio_data": encoded(WAV)}}
    (answer,) = await ask([body])
    assert (answer.status_code, "Add a user message" in answer.json()["detail"]) == (422, True)
    assert seen() == []


async def test_request_without_audio_ignores_the_key(ask, seen, folder):
    (answer,) = await ask([{"input": "Who?", "metadata": {"note": "audio_path"}}], audio_root=str(folder))
    assert answer.status_code == 200
    assert contents(seen) == [[[{"type": "text", "text": "Who?"}]]]


def test_audio_root_must_exist(tmp_path):
    settings = {"base_url": "http://x/v1", "api_key": "k", "model": "m"}
    with pytest.raises((ValueError, ValidationError), match=r"audio_root.*folder '.*/nowhere' not found"):
        make_server(VLLMModel, **settings, audio_root=str(tmp_path / "nowhere"))
