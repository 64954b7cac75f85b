from responses_api_agents.table_talk.lines import rehearsed
from responses_api_agents.table_talk.rehearsal.app import RehearsalAgent, RehearsalAgentConfig


def test_modules_of_the_group() -> None:
    assert rehearsed("Heads?") == "Heads? Think aloud first."
    assert RehearsalAgent.model_fields["config"].annotation is RehearsalAgentConfig
