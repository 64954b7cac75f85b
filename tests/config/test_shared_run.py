"""The description of a run for other processes has everything that calls need."""

from nemo_gym.calls.address_book import AddressBook
from nemo_gym.config.models import RunConfig
from nemo_gym.config.shared_run import SharedRun

SERVERS = """
observability_enabled: true
model_call_capture_dir: /calls
policy_api_key: hunter2-hunter2
agent: {responses_api_agents: {simple_agent: {
  entrypoint: app.py, host: 0.0.0.0, port: 7, secret_plan: x, max_request_depth: 50, note: kept here,
  resources_server: {type: resources_servers, name: game}}}}
game: {resources_servers: {mcqa: {entrypoint: app.py, host: 10.0.0.3, port: 8, group_verification: {}}}}
"""


def sent(run: RunConfig, host: str, joined: dict[str, tuple[str, int]]) -> SharedRun:
    seen = SharedRun.of(run).reached_at(host, joined, "a: 1")
    return SharedRun.model_validate_json(seen.model_dump_json(exclude_defaults=True))


def test_client_elsewhere_has_the_same_rules_and_settings(project):
    run = project.load_text(SERVERS)
    shared = sent(run, "10.0.0.2", {})
    book, own = AddressBook.of_run(shared.run), AddressBook.of_run(run)
    assert book.task_rules == own.task_rules
    assert book.task_rules.grouped == {"agent": "game"}
    assert book.settings.capture_dir == own.settings.capture_dir
    assert book.settings.policy_api_key is None
    assert shared.config_yaml == "a: 1"
    text = shared.model_dump_json()
    assert not [word for word in ("hunter2", "secret_plan", "kept here") if word in text]


def test_addresses_are_those_that_the_caller_can_use(project):
    run = project.load_text(SERVERS)
    assert AddressBook.of_run(sent(run, "10.0.0.2", {}).run).address_of("agent") == ("10.0.0.2", 7)
    joined = {"game": ("10.0.0.9", 9)}
    book = AddressBook.of_run(sent(run, "10.0.0.2", joined).run)
    assert [book.address_of(name) for name in ("agent", "game")] == [("10.0.0.2", 7), ("10.0.0.9", 9)]
