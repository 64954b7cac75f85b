"""Policies that rows name for their rollouts. Only the agent's own model server and other agents receive them."""

from __future__ import annotations

from fastapi import FastAPI
from starlette.middleware import Middleware

from nemo_gym.calls.hooks import hooks
from nemo_gym.config.settings import AgentServerRef, ModelServerRef
from nemo_gym.context.current import current_work
from nemo_gym.errors import InvalidTask
from nemo_gym.schemas.row import POLICY_KEYS
from nemo_gym.servers.base import SimpleServer
from nemo_gym.web.app import add_within_session
from nemo_gym.web.policies import RolloutPolicies


def accept_row_policies(agent: SimpleServer, app: FastAPI) -> None:
    """Let rows name the policy of their rollout, if the run allows it.

    The agent passes the policy on to the server that its `model_server` names and to other agents, but not to judges
    and simulated users. An environment server passes the policy on to its `agent_server`.
    """
    book = hooks().address_book(agent.server_client)
    if not book.settings.allow_policy_override:
        return
    model, objection = getattr(agent.config, "model_server", None), ""
    servers = frozenset(book.agent_names())
    if isinstance(model, ModelServerRef):
        servers |= {model.name}
    elif not isinstance(getattr(agent.config, "agent_server", None), AgentServerRef):
        objection = _objection(agent, "does not have a model_server that could use the policy.")
    add_within_session(app, Middleware(RolloutPolicies, servers=servers, reads_rows=True, objection=objection))


def accept_policies(model: SimpleServer, app: FastAPI, *, follows: bool) -> None:
    """If the run allows it, let agents name a rollout's policy, or reject such requests if `follows` is False."""
    if hooks().address_book(model.server_client).settings.allow_policy_override:
        objection = "" if follows else _objection(model, "does not have an endpoint that the policy could replace.")
        add_within_session(app, Middleware(RolloutPolicies, objection=objection))


def check_no_policy(row: object) -> None:
    """Raise `InvalidTask` for a row that names a policy although the run does not allow it."""
    if isinstance(row, dict) and (named := [key for key in POLICY_KEYS if row.get(key) is not None]):
        raise InvalidTask(
            f"the row contains {' and '.join(named)}, but the run does not allow rows to name a policy. Start the run "
            "with --allow-policy-override true, or remove these keys from the row."
        )


def check_own_client(agent: SimpleServer) -> None:
    """Raise `InvalidTask` if the current row names a policy, because a third-party client would ignore it."""
    if current_work().policy is not None:
        raise InvalidTask(_objection(agent, "calls its model with a client that cannot use the policy."))


def _objection(server: SimpleServer, reason: str) -> str:
    name = getattr(server.config, "name", type(server).__name__)
    return f"the row names its own policy, but {name} {reason} Remove {', '.join(POLICY_KEYS)} from the row."
