import functools
import inspect
import json
import logging
from enum import Enum
from typing import Annotated, Any, Callable, ClassVar, Dict, List, Literal, Optional, Tuple, Union

from fastapi import APIRouter, Body, Depends, FastAPI, HTTPException, Request, status
from fastapi.responses import JSONResponse, PlainTextResponse, Response
from pydantic import (
    AliasChoices,
    BaseModel,
    ConfigDict,
    Field,
    RootModel,
    computed_field,
    field_validator,
    model_validator,
)

from nemo_gym import (
    BaseResourcesServerConfig,
    BaseVerifyRequest,
    BaseVerifyResponse,
    SimpleResourcesServer,
)
from nemo_gym.base_resources_server import ReverifyMode
from nemo_gym.server_utils import SESSION_ID_KEY

logger = logging.getLogger(__name__)


class Currency(str, Enum):
    EUR = "eur"
    USD = "usd"


class ShopConfig(BaseResourcesServerConfig):
    REVERIFY_MODE: ClassVar[ReverifyMode] = ReverifyMode.UNSUPPORTED
    model_config = ConfigDict(extra="allow", populate_by_name=True)

    catalogue: Dict[str, float]
    currency: Currency = Currency.EUR

    @field_validator("catalogue")
    @classmethod
    def not_empty(cls, v):
        if not v:
            raise ValueError("empty catalogue")
        return v


class Basket(RootModel[Dict[str, int]]):
    pass


class Order(BaseModel):
    item: str
    count: int = Field(default=1, ge=1, validation_alias=AliasChoices("count", "quantity"))

    @model_validator(mode="after")
    def known(self):
        if self.item.startswith("_"):
            raise ValueError("hidden item")
        return self


class Receipt(BaseModel):
    item: str
    count: int
    price: float

    @computed_field
    @property
    def total(self) -> float:
        return self.count * self.price


class ShopVerifyRequest(BaseVerifyRequest):
    model_config = ConfigDict(extra="allow")
    expected: Union[Dict[str, int], List[Tuple[str, int]]]
    mode: Literal["exact", "subset"] = "exact"
    task_index: Optional[int] = Field(default=None, alias="_ng_task_index")


class ShopVerifyResponse(ShopVerifyRequest, BaseVerifyResponse):
    basket: Basket
    currency: Currency


def tool(name: str, **kwargs):
    def mark(fn: Callable) -> Callable:
        fn._shop_tool = (name, kwargs)
        return fn

    return mark


class ShopResourcesServer(SimpleResourcesServer):
    model_config = ConfigDict(arbitrary_types_allowed=True)

    config: ShopConfig
    baskets: Dict[str, Dict[str, int]] = {}
    TOOL_NAMES: ClassVar[List[str]] = []

    def setup_webserver(self) -> FastAPI:
        app = super().setup_webserver()
        for attribute in dir(type(self)):
            method = inspect.getattr_static(type(self), attribute, None)
            if hasattr(method, "_shop_tool"):
                name, kwargs = method._shop_tool
                app.add_api_route(f"/{name}", getattr(self, attribute), methods=["POST"], **kwargs)
        for item in self.config.catalogue:
            app.post(f"/buy_{item}")(functools.partial(self._buy_one, item=item))

            async def price_of(item: str = item) -> Dict[str, float]:
                return {item: self.config.catalogue[item]}

            app.get(f"/price/{item}")(price_of)

        router = APIRouter(prefix="/admin", tags=["admin"])

        @router.get("/baskets", include_in_schema=False)
        async def baskets(count_only: bool = False, key: Annotated[str, Depends(lambda: "k")] = "") -> Any:
            return len(self.baskets) if count_only else self.baskets

        app.include_router(router)
        return app

    def _basket(self, request: Request) -> Dict[str, int]:
        return self.baskets.setdefault(request.session[SESSION_ID_KEY], {})

    async def _buy_one(self, request: Request, item: str) -> Response:
        basket = self._basket(request)
        basket[item] = basket.get(item, 0) + 1
        return PlainTextResponse(f"bought one {item}")

    @tool("order", response_model=Receipt, status_code=status.HTTP_201_CREATED)
    async def order(self, request: Request, body: Order):
        """Order something."""
        if body.item not in self.config.catalogue:
            raise HTTPException(status_code=status.HTTP_400_BAD_REQUEST, detail={"error": f"no {body.item}"})
        basket = self._basket(request)
        basket[body.item] = basket.get(body.item, 0) + body.count
        return {"item": body.item, "count": body.count, "price": self.config.catalogue[body.item], "secret": "x"}

    @tool("basket", response_class=JSONResponse)
    async def show(self, request: Request):
        return self._basket(request)

    @tool("empty_basket", response_model=None)
    async def empty(
        self, request: Request, args: Annotated[Optional[Dict[str, Any]], Body()] = None
    ) -> Union[Response, dict]:
        self._basket(request).clear()
        return JSONResponse({"emptied": True, "args": args}, headers={"X-Emptied": "yes"})

    @tool("basket_model")
    def as_model(self, request: Request) -> Basket:
        return Basket(self._basket(request))

    async def verify(self, body: ShopVerifyRequest, request: Request) -> ShopVerifyResponse:
        basket = self._basket(request)
        expected = dict(body.expected)
        ok = basket == expected if body.mode == "exact" else expected.items() <= basket.items()
        logger.info("verified %s", json.dumps(basket))
        return ShopVerifyResponse(
            **body.model_dump(by_alias=True), reward=int(ok), basket=basket, currency=self.config.currency
        )


if __name__ == "__main__":
    ShopResourcesServer.run_webserver()
