import pytest
from fastapi.testclient import TestClient
from pydantic import ValidationError

from resources_servers.shop_tools.app import Basket, Currency, ShopConfig, ShopVerifyRequest

ROW = {
    "responses_create_params": {"input": "Buy."},
    "response": {
        "id": "r",
        "created_at": 0,
        "model": "m",
        "object": "response",
        "output": [],
        "parallel_tool_calls": False,
        "tool_choice": "auto",
        "tools": [],
    },
    "expected": {"apple": 2},
    "_ng_task_index": 3,
    "uuid": "u",
}


class TestApp:
    @pytest.fixture
    def client(self, server):
        return TestClient(server.setup_webserver())

    def test_config(self):
        with pytest.raises(ValidationError, match="empty catalogue"):
            ShopConfig(host="", port=1, entrypoint="", name="", catalogue={})
        assert (
            ShopConfig(host="", port=1, entrypoint="", name="", catalogue={"a": 1}, currency="usd").currency
            is Currency.USD
        )

    @pytest.mark.parametrize("count_name", ["count", "quantity"])
    def test_order(self, client, count_name):
        res = client.post("/order", json={"item": "apple", count_name: 2})
        assert res.status_code == 201
        assert res.json() == {"item": "apple", "count": 2, "price": 2.0, "total": 4.0}
        res = client.post("/verify", json=ROW).json()
        assert (res["reward"], res["basket"], res["currency"], res["_ng_task_index"], res["uuid"]) == (
            1.0,
            {"apple": 2},
            "eur",
            3,
            "u",
        )
        assert "task_index" not in res

    def test_errors(self, client):
        res = client.post("/order", json={"item": "plum"})
        assert (res.status_code, res.json()) == (400, {"detail": {"error": "no plum"}})
        assert client.post("/order", json={"item": "_x"}).status_code == 422
        assert client.post("/order", json={"item": "apple", "count": 0}).status_code == 422
        assert client.post("/order").status_code == 422
        assert client.get("/order").status_code == 405

    def test_other_routes(self, client):
        assert client.post("/buy_pear").text == "bought one pear"
        assert client.post("/basket").json() == {"pear": 1}
        assert client.post("/basket_model", json={}).json() == {"pear": 1}
        assert client.get("/price/pear").json() == {"pear": 3.0}
        assert client.get("/admin/baskets", params={"count_only": True}).json() == 1
        res = client.post("/empty_basket", json={"why": "no"})
        assert (res.json(), res.headers["x-emptied"]) == ({"emptied": True, "args": {"why": "no"}}, "yes")
        assert client.post("/empty_basket").json()["args"] is None
        assert client.get("/reverify_mode").json() == "unsupported"
        assert client.post("/aggregate_metrics", json={"verify_responses": []}).status_code == 200

    def test_openapi(self, client):
        paths = client.get("/openapi.json").json()["paths"]
        assert {"/order", "/buy_apple", "/price/apple"} <= set(paths)
        assert "/admin/baskets" not in paths

    async def test_called_as_a_method(self, server):
        class FakeRequest:
            session = {"session_id": "x"}

        res = await server.verify(ShopVerifyRequest.model_validate({**ROW, "mode": "subset"}), FakeRequest())
        assert res.reward == 0 and res.basket == Basket({}) and res.task_index == 3
        assert server.baskets == {"x": {}}
