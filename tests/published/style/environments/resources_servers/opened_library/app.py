import sqlite3
from contextlib import asynccontextmanager
from typing import Any, Optional

from fastapi import FastAPI
from pydantic import BaseModel, ConfigDict

from nemo_gym.base_resources_server import (
    BaseResourcesServerConfig,
    BaseVerifyRequest,
    BaseVerifyResponse,
    SimpleResourcesServer,
)


class OpenedLibraryResourcesServerConfig(BaseResourcesServerConfig):
    titles: list[str] = ["Emma", "Persuasion"]


class FindTitleRequest(BaseModel):
    starts_with: str


class FindTitleResponse(BaseModel):
    title: Optional[str]


class OpenedLibraryVerifyRequest(BaseVerifyRequest):
    model_config = ConfigDict(extra="allow")
    title: str


class OpenedLibraryResourcesServer(SimpleResourcesServer):
    model_config = ConfigDict(arbitrary_types_allowed=True)

    config: OpenedLibraryResourcesServerConfig
    database: Optional[sqlite3.Connection] = None

    def setup_webserver(self) -> FastAPI:
        app = super().setup_webserver()
        app.post("/find_title")(self.find_title)

        main_app_lifespan = app.router.lifespan_context

        @asynccontextmanager
        async def lifespan_wrapper(app: FastAPI):
            self.database = sqlite3.connect(":memory:", check_same_thread=False)
            self.database.execute("CREATE TABLE books (title TEXT)")
            self.database.executemany("INSERT INTO books VALUES (?)", [(title,) for title in self.config.titles])
            async with main_app_lifespan(app) as maybe_state:
                yield maybe_state
            self.database.close()
            self.database = None

        app.router.lifespan_context = lifespan_wrapper
        return app

    async def find_title(self, body: FindTitleRequest) -> FindTitleResponse:
        query: Any = self.database.execute("SELECT title FROM books WHERE title LIKE ?", (body.starts_with + "%",))
        row = query.fetchone()
        return FindTitleResponse(title=row[0] if row else None)

    async def verify(self, body: OpenedLibraryVerifyRequest) -> BaseVerifyResponse:
        return BaseVerifyResponse(**body.model_dump(), reward=float(body.title in body.response.output_text))


if __name__ == "__main__":
    OpenedLibraryResourcesServer.run_webserver()
