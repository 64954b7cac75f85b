"""Grade an SQL query by comparing its result with that of the reference query."""

from collections.abc import Sequence
from functools import cached_property
from pathlib import Path
from typing import Annotated, Any, ClassVar

from pydantic import ConfigDict, Field

from nemo_gym import (
    BaseResourcesServerConfig,
    BaseSeedSessionRequest,
    BaseVerifyRequest,
    BaseVerifyResponse,
    InvalidTask,
    ModelServerRef,
    NeMoGymResponseCreateParamsNonStreaming,
    ReverifyMode,
    SessionState,
    SimpleResourcesServer,
    Tool,
    ToolError,
    compute_pass_majority_metrics,
    compute_subset_metrics,
    find_path,
    tool,
)
from nemo_gym.grading import Judge, JudgeConfig, PromptFile, Verdict, filled_with
from resources_servers.text_to_sql.databases import databases_of
from resources_servers.text_to_sql.sql import (
    Database,
    DatabaseFailed,
    QueryFailed,
    QueryResult,
    QueryUnreadable,
    SqlLimits,
    SqlRunner,
    as_table,
    last_sql,
)

JudgePrompt = Annotated[
    PromptFile, filled_with("question", "sql_context", "sql_dialect", "expected_answer", "generated_answer")
]


LONGEST_ERROR = 300


class TextToSqlConfig(BaseResourcesServerConfig):
    """The server's configuration: query limits, and a judge for answers that the results alone cannot grade."""

    REVERIFY_MODE: ClassVar[ReverifyMode] = ReverifyMode.STATELESS

    num_processes: int = Field(2, ge=1)
    """Maximum number of worker processes. Each runs one query at a time."""
    query_timeout_secs: float = Field(5, gt=0)
    query_steps: int = Field(SqlLimits.steps, gt=0)
    """Maximum number of steps of SQLite's virtual machine per query."""
    query_rows: int = Field(SqlLimits.rows, gt=0)
    """Maximum number of rows in a query's result."""
    database_dir: Path | None = None
    """The folder that contains a subfolder for each `db_id`. The path is absolute or relative to a search root."""
    offers_run_query: bool = False
    """Whether the model gets the tool `run_query`."""
    judge_model_server: ModelServerRef | None = None
    """The judge. It is asked if SQLite cannot run the reference, if both results are empty, or if SQLite cannot parse
    an answer in another dialect. Without a judge, a row whose reference cannot be run fails the rollout."""
    judge_responses_create_params: NeMoGymResponseCreateParamsNonStreaming = NeMoGymResponseCreateParamsNonStreaming(
        input=[]
    )
    judge_endpoint_max_concurrency: int | None = Field(64, ge=1)
    judge_system_message: str | None = None
    judge_prompt_template_fpath: JudgePrompt = Path(__file__).parent / "prompts" / "judge.md"
    judge_equal_label: str = "[[A=B]]"
    judge_not_equal_label: str = "[[A!=B]]"
    check_twice_swap: bool = False
    reward_if_swap_fails: float = 0.0


class SeedRequest(BaseSeedSessionRequest):
    """A `seed_session()` request with the fields that define the database for the tool `run_query`."""

    sql_context: str = ""
    db_id: str | None = None


class QueriedDatabase(SessionState):
    """The session state: the database that the tool `run_query` queries."""

    database: Database = ""


class TextToSqlVerifyRequest(BaseVerifyRequest):
    """A `verify()` request with the row and the agent's response."""

    model_config = ConfigDict(extra="allow")

    sql: str
    """The reference query."""
    sql_context: str = ""
    """Statements that create and fill the tables. If the row has a `db_id`, only the judge reads them."""
    db_id: str | None = None
    """The subfolder of `database_dir` that contains the row's databases."""
    sql_prompt: str = ""
    sql_dialect: str = "sqlite"

    @property
    def is_for_sqlite(self) -> bool:
        """Whether the row asks for SQLite's dialect."""
        return "sqlite" in self.sql_dialect.casefold()


class TextToSqlServer(SimpleResourcesServer):
    """A verifier that runs the answer and the reference on the row's database, and compares the results."""

    config: TextToSqlConfig

    @cached_property
    def runner(self) -> SqlRunner:
        """The worker processes that run queries."""
        limits = SqlLimits(
            steps=self.config.query_steps, rows=self.config.query_rows, deadline_s=self.config.query_timeout_secs
        )
        return SqlRunner(self.config.num_processes, limits)

    @cached_property
    def judge(self) -> Judge | None:
        """The judge, or None if the config does not name one."""
        if self.config.judge_model_server is None:
            return None
        settings = JudgeConfig(
            model_server=self.config.judge_model_server,
            prompt=self.config.judge_prompt_template_fpath,
            system_message=self.config.judge_system_message,
            labels=[self.config.judge_equal_label, self.config.judge_not_equal_label],
            max_concurrency=self.config.judge_endpoint_max_concurrency,
            responses_create_params=self.config.judge_responses_create_params,
            swap=("expected_answer", "generated_answer") if self.config.check_twice_swap else None,
        )
        return Judge(settings, self.server_client)

    async def aclose(self) -> None:
        self.runner.close()

    def tools(self) -> list[Tool]:
        """Return `run_query` if the configuration offers it, else an empty list."""
        return super().tools() if self.config.offers_run_query else []

    async def seed_session(self, body: SeedRequest, database: QueriedDatabase) -> None:
        """Store the rollout's database in the session, for `run_query`."""
        database.database = self._databases(body)[0]

    @tool
    async def run_query(self, query: str, database: QueriedDatabase) -> str:
        """Run one SELECT on the database and read what it finds: a line for the columns, then one for each row."""
        try:
            return as_table(await self.runner.query(database.database, query))
        except DatabaseFailed as error:
            raise InvalidTask(f"{self.config.name}: the row's database: {error}") from error
        except QueryFailed as error:
            raise ToolError(f"The query failed: {error}") from error

    async def verify(self, body: TextToSqlVerifyRequest) -> BaseVerifyResponse:
        """Reward a query with the same result as the reference."""
        databases = self._databases(body)
        # Run the reference even if the answer lacks a query, because a faulty row must be reported for every answer.
        expected = await self._expected(body, databases[0])
        sql = last_sql(body.response.answer_text)
        if sql is None:
            return _graded(body, 0.0, None, "no_sql")
        if expected is None:
            assert self.judge is not None
            return await self._judged(body, sql, self.judge)
        try:
            if not await self.runner.finds_the_same(databases[0], sql, body.sql, expected):
                return _graded(body, 0.0, sql, "different_results")
            is_right = await self._agrees_elsewhere(body, sql, databases[1:])
        except QueryFailed as error:
            if self.judge is not None and isinstance(error, QueryUnreadable) and not body.is_for_sqlite:
                return await self._judged(body, sql, self.judge)
            return _graded(body, 0.0, sql, f"query_failed: {error}")
        if is_right and self.judge is not None and not expected.rows:
            return await self._judged(body, sql, self.judge)
        return _graded(body, float(is_right), sql, None if is_right else "different_results: with other rows")

    def compute_metrics(self, tasks: list[list[dict[str, Any]]]) -> dict[str, Any]:
        """Return pass rates overall and for each difficulty, if the rows have one."""
        return {**compute_pass_majority_metrics(tasks).metrics, **compute_subset_metrics(tasks, "difficulty")}

    def _databases(self, body: SeedRequest | TextToSqlVerifyRequest) -> list[Database]:
        """Return the row's database, followed by other databases with the same schema."""
        if body.db_id is None:
            return [body.sql_context]
        given = self.config.database_dir
        if given is None:
            raise InvalidTask(f"{self.config.name}: db_id: set database_dir to the folder with the row's database.")
        return databases_of(find_path(given, Path.is_dir) or given, body.db_id)

    async def _expected(self, body: TextToSqlVerifyRequest, database: Database) -> QueryResult | None:
        """Return the reference's result, or None if the reference cannot be run and a judge decides."""
        try:
            return await self.runner.query(database, body.sql)
        except QueryFailed as error:
            if self.judge is not None:
                return None
            key = "sql" if not isinstance(error, DatabaseFailed) else "sql_context" if body.db_id is None else "db_id"
            raise InvalidTask(
                f"{self.config.name}: {key}: SQLite cannot run the reference ({error}). Fix the row, or set "
                "judge_model_server."
            ) from error

    async def _agrees_elsewhere(self, body: TextToSqlVerifyRequest, sql: str, databases: Sequence[Database]) -> bool:
        """Return whether a query and the reference have the same results on `databases`.

        If the row does not have a `db_id`, compare the results on generated rows instead.
        """
        if body.db_id is None:
            return await self.runner.agrees_elsewhere(body.sql_context, sql, body.sql)
        for database in databases:
            expected = await self._expected(body, database)
            if expected is None:
                continue
            # Compare only the results here, because the tables were already compared on the first database.
            expected = expected._replace(tables=frozenset())
            if not await self.runner.finds_the_same(database, sql, body.sql, expected):
                return False
        return True

    async def _judged(self, body: TextToSqlVerifyRequest, sql: str, judge: Judge) -> BaseVerifyResponse:
        verdict = await judge.ask(
            question=body.sql_prompt,
            sql_context=body.sql_context,
            sql_dialect=body.sql_dialect,
            expected_answer=body.sql,
            generated_answer=sql,
        )
        is_equal = verdict.label == self.config.judge_equal_label
        swap_failed = verdict.was_swapped and not is_equal
        reward = float(is_equal) if not swap_failed else self.config.reward_if_swap_fails
        return _graded(body, reward, sql, None if is_equal else f"judge: {verdict.outcome}", verdict)


def _graded(
    body: TextToSqlVerifyRequest,
    reward: float,
    sql: str | None,
    failure_reason: str | None,
    verdict: Verdict | None = None,
) -> BaseVerifyResponse:
    details: dict[str, Any] = {
        "extracted_sql": sql,
        "judge_passed": None if verdict is None else failure_reason is None,
        "failure_reason": failure_reason,
        "why": f"the judge's verdict is {_decision(verdict)}" if verdict else _why(failure_reason),
        "judge_evaluations": [call.record() for call in verdict.calls] if verdict else [],
    }
    return BaseVerifyResponse.grade(body, reward=reward, **details)


def _decision(verdict: Verdict) -> str:
    return verdict.label or f"{verdict.outcome}{' (reward_if_swap_fails)' if verdict.was_swapped else ''}"


def _why(failure_reason: str | None) -> str:
    match (failure_reason or "").split(": ", 1):
        case [""]:
            return "the query has the same result as the reference"
        case ["no_sql"]:
            return "the answer does not contain SQL"
        case ["query_failed", message]:
            return f"SQLite cannot run the query: {message[:LONGEST_ERROR]!r}"
        case ["different_results", rows]:
            return f"the result differs from the reference's {rows}"
        case _:
            return "the result differs from the reference's"


if __name__ == "__main__":
    TextToSqlServer.run_webserver()
