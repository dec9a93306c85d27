# Needs Python 3.11 or later, make, and a package index that pip can reach.

# The first of these that is new enough; python3 when none is, so that `setup` can say so.
PYTHON ?= $(or $(firstword $(foreach name,python3 python3.13 python3.12 python3.11,\
	$(shell $(name) -c 'import sys; sys.version_info >= (3, 11) and print("$(name)")' 2>/dev/null))),python3)
ARGS ?=
TARGET ?= local
WORKERS ?= 4
ifeq ($(filter local aws,$(TARGET)),)
$(error TARGET must be local or aws, not $(TARGET))
endif
ENDPOINT := $(if $(filter aws,$(TARGET)),--endpoint aws)

VENV := .venv
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip install --quiet --disable-pip-version-check
RUNNABLE := $(VENV)/.runnable
INSTALLED := $(VENV)/.installed
LAB_READY := $(VENV)/.lab-ready
PATHS := src tests scripts benchmarks examples
EXPLORED := tests/simulation tests/end_to_end/test_fuzz_campaign.py tests/end_to_end/jobs/test_document.py tests/unit

SCENARIOS := happy crash duplicates business-idempotency poison partial-batch side-effects graceful-shutdown fifo-order \
	backpressure purge-timing out-of-order backlog-drain dlq-redrive double-send lost-response lease-theft \
	noisy-neighbour retry-storm

.DEFAULT_GOAL := help
.PHONY: help setup run test test-fast explore evidence check lint types contracts format bench bench-peers bench-library bench-scaling lock clean
.PHONY: preflight infra-up infra-down venv validate scenarios scenarios-fast scenarios-slow $(SCENARIOS:%=scenario-%)

help: ## Show this list
	@awk -F ':.*## ' '/^##@ / { printf "\n%s\n", substr($$0, 5) } \
		/^[a-zA-Z-]+:.*## / { printf "  make %-14s  %s\n", $$1, $$2 }' $(MAKEFILE_LIST)
	@echo
	@echo "Scenarios"
	@echo "$(SCENARIOS)" | fold -s -w 76 | sed 's/^/  /; s/ *$$//'
	@echo
	@echo "ARGS passes extra arguments on:  make test ARGS='-k lease -x', make scenario-happy ARGS='--count 10'"
	@echo "PYTHON chooses the interpreter:  make setup PYTHON=python3.13"
	@echo "TARGET=aws is for the lab:       make infra-up TARGET=aws"

##@ Develop
setup: $(INSTALLED) ## Make .venv with everything for development, pinned, and Penstock itself, editable

$(INSTALLED): $(RUNNABLE) requirements-dev.lock
	$(PIP) --requirement requirements-dev.lock
	@touch $@ $(LAB_READY)

# What running needs, and no more: a tenth of what development does.
$(RUNNABLE): pyproject.toml requirements.lock
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { \
		echo "Penstock needs Python 3.11 or later, and $(PYTHON) is $$($(PYTHON) --version 2>&1)." >&2; \
		echo "Name a later one:  make $(MAKECMDGOALS) PYTHON=python3.13" >&2; \
		exit 1; }
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(PIP) --no-deps --requirement requirements.lock --editable .
	@touch $@

run: $(RUNNABLE) ## Serve queues and jobs on 127.0.0.1:9324, kept in ./data/penstock.db
	@mkdir -p data
	$(BIN)/penstock serve --host 127.0.0.1 --port 9324 --store sqlite:./data/penstock.db $(ARGS)

test: setup ## Run every test
	$(BIN)/pytest -n $(WORKERS) --dist=worksteal $(ARGS)

test-fast: setup ## Run the tests that are not marked slow
	$(BIN)/pytest -n $(WORKERS) --dist=worksteal -m "not slow" $(ARGS)

explore: setup ## Run what is tested at random on examples that nobody has tried before
	PENSTOCK_TEST_EXPLORE=1 $(BIN)/pytest -n $(WORKERS) --dist=worksteal $(EXPLORED) $(ARGS)

evidence: setup ## Run the campaigns at full size and print what they found
	PENSTOCK_TEST_EVIDENCE=1 $(BIN)/pytest -n $(WORKERS) --dist=worksteal -m "campaign or sampled" $(ARGS)

check: lint types contracts test ## Run everything that must pass before a merge

lint: setup ## Check style and formatting with ruff
	$(BIN)/ruff check $(PATHS)
	$(BIN)/ruff format --check $(PATHS)

types: setup ## Check types with mypy
	$(BIN)/mypy

contracts: setup ## Check who imports whom with import-linter
	$(BIN)/lint-imports

format: setup ## Format the code and apply ruff's safe fixes
	$(BIN)/ruff check --fix-only $(PATHS)
	$(BIN)/ruff format $(PATHS)

##@ Measure
bench: setup ## Run the benchmarks
	$(BIN)/python -m benchmarks compare $(ARGS)

bench-peers: setup ## Compare with other servers that speak SQS, each fetched once
	$(BIN)/python -m benchmarks peers $(ARGS)

bench-library: setup ## Compare the task library with others, each fetched once
	$(BIN)/python -m benchmarks library $(ARGS)

bench-scaling: setup ## See how cost grows with queues, backlog, size, clients, nodes
	$(BIN)/python -m benchmarks scaling $(ARGS)

##@ The lab
preflight: ## Check the tools that these targets need, and say what is missing
	@PYTHON="$(PYTHON)" TARGET="$(TARGET)" scripts/preflight.sh

infra-up: $(LAB_READY) ## Make all queues and tables, on a server of this machine, and write .env
ifeq ($(TARGET),aws)
	@scripts/infra_aws.sh up $(ARGS)
else
	@$(BIN)/penstock lab up $(ARGS)
endif

infra-down: $(LAB_READY) ## Remove them, and stop what infra-up started
ifeq ($(TARGET),aws)
	@scripts/infra_aws.sh down $(ARGS)
else
	@$(BIN)/penstock lab down $(ARGS)
endif

validate: $(LAB_READY) ## Check that the queues and tables are as they must be
	@scripts/set_env.sh $(BIN)/penstock lab validate $(ENDPOINT) $(ARGS)

venv: $(LAB_READY) ## Make .venv with what the lab needs, and no more

$(LAB_READY): $(RUNNABLE) requirements-dev.lock
	$(PIP) --constraint requirements-dev.lock boto3
	@touch $@

scenarios: $(LAB_READY) ## Run all scenarios
	@$(BIN)/penstock lab run --all $(ENDPOINT) $(ARGS)

scenarios-fast: $(LAB_READY) ## Run those that take seconds in real time
	@$(BIN)/penstock lab run --fast $(ENDPOINT) $(ARGS)

scenarios-slow: $(LAB_READY) ## Run those that take minutes in real time
	@$(BIN)/penstock lab run --slow $(ENDPOINT) $(ARGS)

scenario-NAME: ## Run one scenario, of those below
	@echo "Name a scenario: make scenario-happy" >&2; exit 2

$(SCENARIOS:%=scenario-%): scenario-%: $(LAB_READY)
	@$(BIN)/penstock lab run $* $(ENDPOINT) $(ARGS)

# Any other name: the command says which one was meant.
scenario-%: $(LAB_READY)
	@$(BIN)/penstock lab run $* $(ENDPOINT) $(ARGS)

##@ Look after the project
lock: ## Resolve pyproject.toml again and rewrite both lock files
	$(PYTHON) scripts/lock.py

clean: ## Remove .venv, caches and build output; data/ is kept
	rm -rf $(VENV) build dist .mypy_cache .pytest_cache .ruff_cache .import_linter_cache .hypothesis .node-clients .go-client
	find src tests scripts benchmarks -name __pycache__ -type d -prune -exec rm -rf {} +
