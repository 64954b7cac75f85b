"""Convert streaming Responses requests of third-party clients to the fields that every model server supports."""

from __future__ import annotations

from collections.abc import Container, Iterable, Mapping
from itertools import takewhile
from typing import NamedTuple, TypeGuard

from nemo_gym.dialects.chat import new_id
from nemo_gym.jsonl import JsonObject
from nemo_gym.schemas.items import FunctionToolCall, OutputItem
from nemo_gym.schemas.responses import Response
from nemo_gym.schemas.shapes import Item

STREAM_FIELDS = frozenset({"stream", "stream_options"})


class QualifiedName(NamedTuple):
    """The name of a function in a namespace. The model sees it as `<namespace>__<name>`."""

    namespace: str
    name: str

    @property
    def flat(self) -> str:
        """The name that the model sees."""
        return f"{self.namespace}__{self.name}"


class PlainRequest(NamedTuple):
    """A request without streaming. `names` maps the model's name of each flattened function to the client's name."""

    fields: Mapping[str, object]
    names: dict[str, QualifiedName]


def plain_request(body: Mapping[str, object], known_fields: Container[str]) -> PlainRequest:
    """Remove streaming and other client-specific fields from a request.

    Unknown fields and nulls are dropped. Tools in namespaces are flattened, and tools offered in mid-conversation are
    offered from the start. Leading system and developer messages become instructions, because chat templates accept
    only one system message. Malformed content is kept, so that strict validation rejects it later.
    """
    fields: JsonObject = {
        name: value
        for name, value in body.items()
        if name in known_fields and name not in STREAM_FIELDS and value is not None
    }
    offered, instructions = fields.get("tools", []), fields.get("instructions", "")
    if isinstance(fields.get("input"), list):
        conversation = _conversation(fields["input"])
        fields["input"] = conversation.items
        if conversation.instructions and isinstance(instructions, str):
            fields["instructions"] = "\n\n".join(filter(None, [instructions, *conversation.instructions]))
        if conversation.tools and isinstance(offered, list):
            offered = [*offered, *conversation.tools]
    if not isinstance(offered, list):
        return PlainRequest(fields, {})
    flat = [each for tool in offered for each in _flattened(tool)]
    if flat:
        fields["tools"] = [each.tool for each in flat]
    return PlainRequest(fields, {each.origin.flat: each.origin for each in flat if each.origin is not None})


def with_client_names(response: Response, names: Mapping[str, QualifiedName]) -> Response:
    """Return the response with the client's namespace and name in each call of a flattened function."""
    if not names:
        return response
    return response.model_copy(update={"output": [_with_client_name(item, names) for item in response.output]})


def _with_client_name(item: OutputItem, names: Mapping[str, QualifiedName]) -> OutputItem:
    origin = names.get(item.name) if isinstance(item, FunctionToolCall) else None
    return item if origin is None else item.model_copy(update=origin._asdict())


def _offers_tools(item: object) -> TypeGuard[Item]:
    return isinstance(item, dict) and item.get("type") == "additional_tools" and isinstance(item.get("tools"), list)


class _FlatTool(NamedTuple):
    tool: object
    origin: QualifiedName | None = None


def _flattened(tool: object) -> Iterable[_FlatTool]:
    namespace = tool if isinstance(tool, dict) and tool.get("type") == "namespace" else {}
    tools = namespace.get("tools")
    if not isinstance(tools, list) or not all(isinstance(each, dict) and "name" in each for each in tools):
        return [_FlatTool(tool)]
    origins = [QualifiedName(str(namespace.get("name")), each["name"]) for each in tools]
    return [
        # Drop `defer_loading`, because the model cannot search for deferred tools here.
        _FlatTool({**{key: each[key] for key in each if key != "defer_loading"}, "name": origin.flat}, origin)
        for each, origin in zip(tools, origins, strict=True)
    ]


class _Conversation(NamedTuple):
    instructions: list[str]
    """The system and developer messages before any other message."""
    tools: list[object]
    items: list[object]


def _conversation(items: list[object]) -> _Conversation:
    messages = [item for item in items if not _offers_tools(item)]
    leading = list(takewhile(lambda text: text is not None, map(_instruction, messages)))
    return _Conversation(
        instructions=[text for text in leading if text],
        tools=[tool for item in items if _offers_tools(item) for tool in item["tools"]],
        items=[_plain_item(item) for item in messages[len(leading) :]],
    )


def _instruction(item: object) -> str | None:
    """Return the text of a system or developer message, or None for anything else."""
    if not isinstance(item, dict) or item.get("role") not in ("system", "developer"):
        return None
    if item.get("type", "message") != "message":
        return None
    content = item.get("content")
    parts = content if isinstance(content, list) else [{"text": content}]
    texts = [part["text"] for part in parts if isinstance(part, dict) and isinstance(part.get("text"), str)]
    return "\n\n".join(texts) if len(texts) == len(parts) else None


def _plain_item(item: object) -> object:
    if not isinstance(item, dict):
        return item
    kind = item.get("type")
    if kind == "reasoning" and item.get("id") is None:
        # Add an id, because clients omit it if the endpoint does not store their responses.
        return {**item, "id": new_id("rs")}
    if kind == "function_call" and isinstance(item.get("namespace"), str) and isinstance(item.get("name"), str):
        origin = QualifiedName(item["namespace"], item["name"])
        return {**{key: item[key] for key in item if key != "namespace"}, "name": origin.flat}
    return item
