"""Grade a JSON, YAML, XML, TOML or CSV document by validating it with the row's JSON Schema."""

import re
from typing import ClassVar, Literal, NamedTuple

import orjson
from fastapi import FastAPI
from fastapi.responses import PlainTextResponse
from pydantic import ConfigDict, PrivateAttr

from nemo_gym import (
    BaseResourcesServerConfig,
    BaseRunRequest,
    BaseVerifyRequest,
    BaseVerifyResponse,
    InvalidTask,
    NeMoGymResponse,
    ReverifyMode,
    SimpleResourcesServer,
)
from nemo_gym.grading import WorkerCrashed, WorkerPool, WorkerTimedOut
from resources_servers.structured_outputs.grading import (
    PARSE_ERROR,
    DocumentFormat,
    Problem,
    SchemaUnusable,
    Unreadable,
    check_keys,
    first_problem,
)

NO_ANSWER, TOO_COSTLY = "no_answer", "too_costly"
SUBMIT = "submit_document"
"""The tool in rows from `prepare.py`. Other rows may use any name."""

WORKERS, DEADLINE_S, MEMORY_LIMIT_BYTES = 2, 5.0, 2 << 30
SHORT, SHORT_JSON = 2_000, 20_000
"""Maximum length in characters of texts that are parsed in this process. A worker parses longer texts."""
COSTLY = re.compile(r'"(?:\$ref|\$dynamicRef|\$recursiveRef|pattern|patternProperties)"')
"""Schema keywords that can make the validation of a short text endless. If any occurs, a worker validates the text."""


class StructuredOutputsConfig(BaseResourcesServerConfig):
    """The server's configuration, with an option for XML documents."""

    REVERIFY_MODE: ClassVar[ReverifyMode] = ReverifyMode.STATELESS

    xml_coerce_types: bool = True
    """Whether to convert the text of an XML element to a number, boolean or null if the schema expects one."""


class StructuredOutputsRunRequest(BaseRunRequest):
    """A dataset row with the schema, the format, and the expected location of the document."""

    model_config = ConfigDict(extra="allow")

    schema_str: str
    """The JSON Schema as a JSON text."""
    schema_type: DocumentFormat = "json"
    response_mode: Literal["text", "tool_call"] = "text"
    tool_name: str | None = None
    """The tool whose last call contains the document. By default, any tool is allowed."""
    tool_payload_key: str | None = None
    """The argument that contains the document. By default, the arguments as a whole are the document."""


class StructuredOutputsVerifyRequest(StructuredOutputsRunRequest, BaseVerifyRequest):
    """A `verify()` request with the row and the agent's response."""


class Answer(NamedTuple):
    """The document, or the reason why it is missing."""

    text: str = ""
    problem: Problem | None = None


class StructuredOutputsServer(SimpleResourcesServer):
    """A verifier that validates the last message, or the last tool call, with the schema."""

    config: StructuredOutputsConfig

    _workers: WorkerPool = PrivateAttr(
        default_factory=lambda: WorkerPool(WORKERS, DEADLINE_S, memory_limit_bytes=MEMORY_LIMIT_BYTES)
    )

    async def aclose(self) -> None:
        await super().aclose()
        self._workers.close()

    def setup_webserver(self) -> FastAPI:
        """Add a route for any tool name, because the tools are defined in the rows."""
        app = super().setup_webserver()
        for path in (f"/{SUBMIT}", "/{tool_name}"):
            app.post(path, response_class=PlainTextResponse)(received)
        return app

    async def verify(self, body: StructuredOutputsVerifyRequest) -> BaseVerifyResponse:
        answer = answer_in(body.response, body)
        # Validate even if the document is missing, because an unusable schema must be reported for every answer.
        found = await self._first_problem(answer.text, body)
        problem = answer.problem or found
        return BaseVerifyResponse.grade(
            body,
            reward=float(problem is None),
            error_type=problem.kind if problem else None,
            error_message=problem.message if problem else None,
            why=f"{problem.kind}: {problem.message}" if problem else "the document is valid under the schema",
        )

    async def _first_problem(self, text: str, row: StructuredOutputsRunRequest) -> Problem | None:
        asked = (text, row.schema_type, row.schema_str, self.config.xml_coerce_types)
        try:
            is_short = len(text) <= (SHORT_JSON if row.schema_type == "json" else SHORT)
            if is_short and not COSTLY.search(row.schema_str):
                return first_problem(*asked)
            return await self._workers.run(first_problem, *asked)
        except (WorkerTimedOut, WorkerCrashed) as error:
            return Problem(TOO_COSTLY, f"the document took too much time or memory: {error}")
        except SchemaUnusable as error:
            raise InvalidTask(f"{self.config.name}: schema_str: {error}") from error


async def received() -> str:
    """Confirm the call without grading the document. `verify` grades it."""
    return "Received."


def answer_in(response: NeMoGymResponse, row: StructuredOutputsRunRequest) -> Answer:
    """Return the document from the part of the response in which the row expects it."""
    if row.response_mode == "text":
        text = response.answer_text
        return Answer(text) if text.strip() else Answer(problem=Problem(NO_ANSWER, "the answer has no text"))
    calls = [call for call in response.tool_calls if row.tool_name in (None, call.name)]
    if not calls:
        return Answer(problem=Problem(NO_ANSWER, f"the answer has no call of {row.tool_name or 'a tool'}"))
    return _payload(calls[-1].arguments, row.tool_payload_key)


def _payload(arguments: str, key: str | None) -> Answer:
    if key is None:
        return Answer(arguments)
    try:
        given = orjson.loads(arguments)
        check_keys(arguments)
        if not isinstance(given, dict) or key not in given:
            return Answer(problem=Problem(NO_ANSWER, f"the call has no argument '{key}'"))
        payload = given[key]
        return Answer(payload if isinstance(payload, str) else orjson.dumps(payload).decode())
    except (orjson.JSONDecodeError, orjson.JSONEncodeError) as error:
        return Answer(problem=Problem(PARSE_ERROR, f"the arguments of the call are not JSON: {error}"))
    except Unreadable as error:
        return Answer(problem=Problem(PARSE_ERROR, f"the arguments of the call: {error}"))


if __name__ == "__main__":
    StructuredOutputsServer.run_webserver()
