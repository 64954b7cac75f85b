"""A streaming Responses request as foreign agents send it, said in the fields that every model server reads."""

from __future__ import annotations

from collections.abc import Container, Iterable, Mapping
from itertools import takewhile
from typing import Any, NamedTuple

from nemo_gym.dialects.chat import new_id
from nemo_gym.schemas.items import FunctionToolCall, OutputItem
from nemo_gym.schemas.responses import Response

STREAM_FIELDS = frozenset({"stream", "stream_options"})


class QualifiedName(NamedTuple):
    """A function of a namespace; the model knows it by one name, `<namespace>__<name>`."""

    namespace: str
    name: str

    @property
    def flat(self) -> str:
        """The name that the model knows."""
        return f"{self.namespace}__{self.name}"


class PlainRequest(NamedTuple):
    """A request without streaming, and what its flattened functions are called by the client."""

    fields: dict[str, Any]
    names: dict[str, QualifiedName]


def plain_request(body: Mapping[str, Any], known_fields: Container[str]) -> PlainRequest:
    """Take out of a request what only streaming clients say.

    Unknown fields and nulls are dropped, tools of a namespace stand alone, tools offered in the middle of the
    conversation are offered from its beginning, and the system's and developer's first words become instructions
    (chat templates take them in one place only). What is malformed stays, for the strict reading to refuse.
    """
    fields = {
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
    """The response with each call of a flattened function under its namespace and name."""
    if not names:
        return response
    return response.model_copy(update={"output": [_with_client_name(item, names) for item in response.output]})


def _with_client_name(item: OutputItem, names: Mapping[str, QualifiedName]) -> OutputItem:
    origin = names.get(item.name) if isinstance(item, FunctionToolCall) else None
    return item if origin is None else item.model_copy(update=origin._asdict())


def _offers_tools(item: Any) -> bool:
    return isinstance(item, dict) and item.get("type") == "additional_tools" and isinstance(item.get("tools"), list)


class _FlatTool(NamedTuple):
    tool: Any
    origin: QualifiedName | None = None


def _flattened(tool: Any) -> Iterable[_FlatTool]:
    is_namespace = isinstance(tool, dict) and tool.get("type") == "namespace" and isinstance(tool.get("tools"), list)
    if not is_namespace or not all(isinstance(each, dict) and "name" in each for each in tool["tools"]):
        return [_FlatTool(tool)]
    origins = [QualifiedName(str(tool.get("name")), each["name"]) for each in tool["tools"]]
    return [
        # There is no search here by which the model could find a tool whose loading is put off.
        _FlatTool({**{key: each[key] for key in each if key != "defer_loading"}, "name": origin.flat}, origin)
        for each, origin in zip(tool["tools"], origins, strict=True)
    ]


class _Conversation(NamedTuple):
    instructions: list[str]
    """What the system or the developer said before anyone else spoke."""
    tools: list[Any]
    items: list[Any]


def _conversation(items: list[Any]) -> _Conversation:
    said = [item for item in items if not _offers_tools(item)]
    told = list(takewhile(lambda text: text is not None, map(_instruction, said)))
    return _Conversation(
        instructions=[text for text in told if text],
        tools=[tool for item in items if _offers_tools(item) for tool in item["tools"]],
        items=[_plain_item(item) for item in said[len(told) :]],
    )


def _instruction(item: Any) -> str | None:
    """The text of a message by the system or the developer; None for anything else."""
    if not isinstance(item, dict) or item.get("role") not in ("system", "developer"):
        return None
    if item.get("type", "message") != "message":
        return None
    content = item.get("content")
    parts = content if isinstance(content, list) else [{"text": content}]
    texts = [part["text"] for part in parts if isinstance(part, dict) and isinstance(part.get("text"), str)]
    return "\n\n".join(texts) if len(texts) == len(parts) else None


def _plain_item(item: Any) -> Any:
    kind = item.get("type") if isinstance(item, dict) else None
    if kind == "reasoning" and item.get("id") is None:
        # Clients that store nothing at the endpoint send no ids.
        return {**item, "id": new_id("rs")}
    if kind == "function_call" and isinstance(item.get("namespace"), str) and isinstance(item.get("name"), str):
        origin = QualifiedName(item["namespace"], item["name"])
        return {**{key: item[key] for key in item if key != "namespace"}, "name": origin.flat}
    return item
