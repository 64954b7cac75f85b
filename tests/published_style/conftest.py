"""The folders below are their authors', not ours: runners beside them copy them, serve them and run their tests."""

collect_ignore_glob = ["*/resources_servers/*", "*/responses_api_agents/*", "*/responses_api_models/*"]
