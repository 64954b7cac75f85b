"""The context compactions of release 0.7's `claude_code_agent`, matched with their model calls by its own function."""

from __future__ import annotations

import importlib
import logging
from collections.abc import Sequence

from nemo_gym.capture.observations import AgentObservationBundle, ObservationGap
from nemo_gym.capture.records import ModelCallRecord
from nemo_gym.paths import augment_sys_path

logger = logging.getLogger(__name__)

MODULE = "responses_api_agents.claude_code_agent.observability"
FUNCTION = "associate_claude_code_compaction_calls"
JOIN_FAILED = "compaction_model_call_join_failed"


def with_named_calls(bundle: AgentObservationBundle, calls: Sequence[ModelCallRecord]) -> AgentObservationBundle:
    """Let the agent folder's function add references to compaction calls. If the function fails, add a gap."""
    kept = bundle.model_copy(update={"gaps": [gap for gap in bundle.gaps if gap.code != JOIN_FAILED]})
    try:
        augment_sys_path()
        found = getattr(importlib.import_module(MODULE), FUNCTION)(kept, list(calls))
        return AgentObservationBundle.model_validate(found)
    except Exception as error:  # noqa: BLE001 - the folder's code may raise anything
        logger.warning("%s.%s failed: %r", MODULE, FUNCTION, error)
        return kept.model_copy(update={"gaps": [*kept.gaps, ObservationGap(code=JOIN_FAILED, detail=repr(error))]})
