# `make demo`, `make dev` and `make test` are all that a fresh clone needs. uv is used where it is on the PATH, else pip.

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
UV := $(shell command -v uv 2>/dev/null)
DEMO_CONFIGS := configs/demo.yaml

.PHONY: demo dev test test-placements lint lock clean

demo: $(VENV)/.installed
	$(BIN)/ng_e2e_collect_rollouts "+config_paths=[$(DEMO_CONFIGS)]" +split=example +num_repeats=4 \
	    +output_jsonl_fpath=results/demo.jsonl +overwrite=true

# What every environment needs, and the tests.
dev: $(VENV)/.installed-dev

# Four at once on two cores: a third of what tests do is to wait. A worker that a test has brought down is replaced
# twice, and no oftener: the fresh one begins with that same test.
PYTEST := $(BIN)/python -m pytest -n 4 --dist loadfile --max-worker-restart 2
test: $(VENV)/.installed-dev
	$(PYTEST)

# The tests that start servers, once more with all servers of a run in one process, or in two: PLACEMENT=replicas.
PLACEMENT ?= together
test-placements: $(VENV)/.installed-dev
	$(PYTEST) --placement $(PLACEMENT) tests

lint: $(VENV)/.installed-dev
	$(BIN)/ruff check
	$(BIN)/ruff format --check
	$(BIN)/mypy

$(VENV)/.installed: requirements.lock pyproject.toml | $(BIN)/python
	@$(call install,-r requirements.lock)
	@touch $@

$(VENV)/.installed-dev: requirements.lock requirements-dev.lock pyproject.toml | $(BIN)/python
	@command -v cc >/dev/null || { echo "a tested package (reasoning-gym) is built from C: install a compiler first, such as apt-get install gcc libc6-dev" >&2; exit 1; }
	@$(call install,-r requirements.lock -r requirements-dev.lock)
	@touch $@ $(VENV)/.installed

$(BIN)/python:
	@$(PYTHON) -c 'import sys; sys.exit(f"nemo_gym needs Python 3.11 or newer, and {sys.executable} is {sys.version.split()[0]}: make PYTHON=python3.11 …") if sys.version_info < (3, 11) else None'
	@$(if $(UV),$(UV) venv --quiet --python $(PYTHON) $(VENV),$(PYTHON) -m venv $(VENV))

# The project itself is installed without its dependencies: the lock has them all, its build backend too.
ifdef UV
install = $(UV) pip install --quiet --python $(BIN)/python --require-hashes $(1) && \
	$(UV) pip install --quiet --python $(BIN)/python --no-deps --no-build-isolation -e .
else
install = $(BIN)/python -m pip install --quiet --disable-pip-version-check --require-hashes $(1) && \
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps --no-build-isolation -e .
endif

# Pins everything again. The dev lock holds only what the first one does not, so both can be installed together.
COMPILE := uv pip compile --quiet --universal --python-version 3.11 --generate-hashes --no-header --no-annotate
lock:
	$(COMPILE) --no-emit-package nemo-gym --extra build --extra schema pyproject.toml -o requirements.lock
	$(COMPILE) --no-emit-package nemo-gym --extra dev pyproject.toml -c requirements.lock -o requirements-dev.lock \
	    $$(sed -nE 's/^([a-z0-9-]+)==.*/--no-emit-package \1/p' requirements.lock)

clean:
	rm -rf $(VENV) results
