# Needs Python 3.11 or later, make, and a package index that pip can reach.

# The first of these that is new enough; python3 when none is, so that `setup` can say so.
PYTHON ?= $(or $(firstword $(foreach name,python3 python3.13 python3.12 python3.11,\
	$(shell $(name) -c 'import sys; sys.version_info >= (3, 11) and print("$(name)")' 2>/dev/null))),python3)
ARGS ?=
WORKERS ?= 2

VENV := .venv
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip install --quiet --disable-pip-version-check
RUNNABLE := $(VENV)/.runnable
INSTALLED := $(VENV)/.installed
PATHS := src tests scripts benchmarks
EXPLORED := tests/simulation tests/end_to_end/test_fuzz_campaign.py tests/end_to_end/jobs/test_document.py tests/unit

.DEFAULT_GOAL := help
.PHONY: help setup run test test-fast explore evidence check lint types contracts format bench bench-peers bench-scaling lock clean

help: ## Show this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-14s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)
	@echo
	@echo "  ARGS passes extra arguments on:   make test ARGS='-k lease -x'"
	@echo "  PYTHON chooses the interpreter:   make setup PYTHON=python3.13"

setup: $(INSTALLED) ## Make .venv with everything for development, pinned, and Penstock itself, editable

$(INSTALLED): $(RUNNABLE) requirements-dev.lock
	$(PIP) --requirement requirements-dev.lock
	@touch $@

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

bench: setup ## Run the benchmarks
	$(BIN)/python -m benchmarks compare $(ARGS)

bench-peers: setup ## Compare with other servers that speak SQS, each fetched once
	$(BIN)/python -m benchmarks peers $(ARGS)

bench-scaling: setup ## See how cost grows with queues, backlog, size, clients, nodes
	$(BIN)/python -m benchmarks scaling $(ARGS)

lock: ## Resolve pyproject.toml again and rewrite both lock files
	$(PYTHON) scripts/lock.py

clean: ## Remove .venv, caches and build output; data/ is kept
	rm -rf $(VENV) build dist .mypy_cache .pytest_cache .ruff_cache .import_linter_cache .hypothesis .node-clients .go-client
	find src tests scripts benchmarks -name __pycache__ -type d -prune -exec rm -rf {} +
