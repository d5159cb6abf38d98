# Every target sets itself up: a new machine needs make and Python 3.11 or newer.
#   make PYTHON=python3.13 ...     another interpreter
#   make package ARGS="--boto3 pinned"   zips with the boto3 of the lock file
#   make test ARGS="-k lease -x"   more arguments for pytest
#   make simulate SEEDS=10000      more runs; ARGS="--seed 7" prints one, ARGS=--sight plants mistakes
#   make fuzz INPUTS=1000          fewer inputs; ARGS="--door 'a cursor'" sends them to one place

PYTHON ?= python3
ARGS ?=
SEEDS ?= 1000
INPUTS ?= 100000

VENV := .venv
BIN := $(VENV)/bin
UV := $(BIN)/uv
READY := $(VENV)/.ready
MINISTACK := .venv-ministack
MINISTACK_READY := $(MINISTACK)/.ready
INFRA := .venv-infra
INFRA_READY := $(INFRA)/.ready

export UV_PYTHON_DOWNLOADS := never
export UV_LINK_MODE := copy
# Without cached bytecode each run compiles every module and rewrites every test's assertions anew.
unexport PYTHONDONTWRITEBYTECODE

.DEFAULT_GOAL := help
.DELETE_ON_ERROR:
.PHONY: help demo test fast check lint e2e mutations simulate fuzz chaos test-processes reference package lock clean

help: ## Print what make can do
	@awk -F ':.*## ' '/^[a-z0-9-]+:.*## / { printf "  make %-15s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

demo: $(READY) ## Watch webhooks fail, be retried, die and be sent back
	@$(BIN)/rdq demo $(ARGS)

fast: $(READY) ## Seconds: the tests without servers and processes
	$(BIN)/pytest -q -n 2 -m "not slow and not ministack and not processes" $(ARGS)

test: $(READY) $(MINISTACK_READY) $(INFRA_READY) ## All tests except those that kill processes
	$(BIN)/pytest -q -n 2 -m "not processes" $(ARGS)

test-processes: $(READY) $(MINISTACK_READY) ## Real workers, killed while they work
	$(BIN)/pytest -q -m processes $(ARGS)

chaos: $(READY) $(MINISTACK_READY) ## Two minutes of real workers killed and stopped
	CHAOS_TASKS=2000 $(BIN)/pytest -q -rP tests/processes/test_chaos.py $(ARGS)

e2e: $(READY) $(MINISTACK_READY) $(INFRA_READY) ## The shipped templates, deployed locally
	$(BIN)/pytest -q tests/e2e $(ARGS)

mutations: $(READY) ## Make each write condition always true: a test fails
	$(BIN)/python -m tests.mutations $(ARGS)

simulate: $(READY) ## Crashes, lost answers, wrong clocks, by seed
	$(BIN)/python -m tests.simulation --seeds $(SEEDS) $(ARGS)

package: $(READY) ## Function zips, arm64 and x86 (ARGS="--boto3 pinned")
	$(BIN)/python infra/package.py $(ARGS)

fuzz: $(READY) ## Damaged input at every entry point
	$(BIN)/python -m tests.fuzzing --inputs $(INPUTS) $(ARGS)

lint: $(READY) ## Style, format and types
	$(BIN)/ruff check
	$(BIN)/ruff format --check
	$(BIN)/mypy rdq_core tests functions infra benchmarks/cost.py benchmarks/throughput.py benchmarks/coldstart.py benchmarks/kick.py benchmarks/callpaths.py

check: lint ## The whole gate, as CI runs it
	$(MAKE) --no-print-directory test
	$(MAKE) --no-print-directory test-processes
	$(MAKE) --no-print-directory mutations
	$(MAKE) --no-print-directory simulate

reference: $(READY) ## Write the generated pages of docs/ anew
	$(BIN)/python -m tests.docs.api_reference
	$(BIN)/python -m tests.docs.oncall_page
	$(BIN)/python -m tests.docs.ops_reference
	$(BIN)/python -m tests.docs.settings_reference
	$(BIN)/python -m rdq_core.config.schema > docs/queues.schema.json.new && mv docs/queues.schema.json.new docs/queues.schema.json
	COLUMNS=80 $(BIN)/python -m tests.docs.cli_reference > docs/cli.md.new && mv docs/cli.md.new docs/cli.md

lock: $(UV) ## Pin pyproject.toml's needs (ARGS=--upgrade: the newest)
	$(call compile,requirements-uv.lock,--group pyproject.toml:setup)
	$(call compile,requirements-dev.lock,pyproject.toml --all-extras --group dev)
	$(call compile,requirements-lambda.lock,pyproject.toml --constraints requirements-dev.lock)
	$(call compile,requirements-ministack.lock,--group pyproject.toml:ministack)
	$(call compile,requirements-infra.lock,--group pyproject.toml:infra)

clean: ## Remove the environments and what tools left behind
	rm -rf $(VENV) $(MINISTACK) $(INFRA) .mypy_cache .pytest_cache .ruff_cache .hypothesis .rdq-demo build dist

define compile
$(UV) pip compile $(2) $(ARGS) --quiet --universal --python-version 3.11 --generate-hashes \
    --no-emit-index-url --custom-compile-command "make lock" --output-file $(1)
endef

# The environments. uv is pinned like everything else, and installed by pip.
$(UV): requirements-uv.lock
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' \
	    || { echo "rdq needs Python 3.11 or newer; try: make PYTHON=python3.11" >&2; exit 1; }
	@$(PYTHON) -c 'import ensurepip, venv' 2>/dev/null \
	    || { echo "this Python lacks the venv module; on Debian: apt-get install python3-venv" >&2; exit 1; }
	$(BIN)/python -m pip --version >/dev/null 2>&1 || $(PYTHON) -m venv --clear $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --require-hashes -r requirements-uv.lock
	@touch $@

$(READY): $(UV) requirements-dev.lock pyproject.toml
	$(UV) pip sync --quiet --python $(BIN)/python --require-hashes requirements-dev.lock
	$(UV) pip install --quiet --python $(BIN)/python --no-deps --no-build-isolation --editable .
	@touch $@

$(MINISTACK_READY): $(UV) requirements-ministack.lock
	$(UV) venv --quiet --clear --python $(BIN)/python $(MINISTACK)
	$(UV) pip sync --quiet --python $(MINISTACK)/bin/python --require-hashes requirements-ministack.lock
	@touch $@

$(INFRA_READY): $(UV) requirements-infra.lock
	$(UV) venv --quiet --clear --python $(BIN)/python $(INFRA)
	$(UV) pip sync --quiet --python $(INFRA)/bin/python --require-hashes requirements-infra.lock
	@touch $@
