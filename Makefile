# The README's two commands are `make demo` and `make test`; `make help` lists the rest.

PYTHON ?= python3
# How many tests run at a time.
JOBS ?= 2
VENV := .venv
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip --disable-pip-version-check

.PHONY: help setup setup-dev demo test check lint types chaos bench reference lock clean

help: ## What there is to make
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:[^#]*## /\t/' | expand -t 14

$(BIN)/python:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
	  { echo "Python 3.11 or newer is needed; $(PYTHON) is older. Name another: make PYTHON=python3.12 ..."; exit 1; }
	$(PYTHON) -m venv $(VENV)

$(VENV)/.setup: requirements/runtime.lock pyproject.toml | $(BIN)/python
	$(PIP) install --quiet --require-hashes -r requirements/runtime.lock
	$(PIP) install --quiet --no-deps --no-build-isolation -e .
	@touch $@

$(VENV)/.setup-dev: requirements/dev.lock $(VENV)/.setup
	$(PIP) install --quiet --require-hashes -r requirements/dev.lock
	@touch $@

setup: $(VENV)/.setup ## Make .venv with the command .venv/bin/comfy-batch

setup-dev: $(VENV)/.setup-dev ## The same, with what the tests need

demo: setup ## Run the 24 example prompts against the bundled simulator
	$(BIN)/comfy-batch run examples/prompts.csv --simulate

test: setup-dev ## Set up and pass the tests
	$(BIN)/python -m pytest -n $(JOBS)

lint: setup-dev
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

types: setup-dev
	$(BIN)/mypy

check: lint types test ## Style, types and tests

chaos: setup-dev ## Kill, flush and break everything, and count what was billed; takes some minutes
	$(BIN)/python -m tests.simulation --seeds 3000 --jobs 2
	$(BIN)/python -m pytest -m "chaos or not chaos" tests/crash
	$(BIN)/python -m pytest -m chaos tests/acceptance
	$(BIN)/python -m tests.chaos

bench: setup-dev ## Measure against a plain script over the official SDK
	$(BIN)/python -m benchmarks

reference: setup-dev ## Write docs/reference.md from the program
	$(BIN)/python -m tests.support.reference

# Needs uv; writes hashes for every platform and no index address.
lock: ## Renew the lock files
	uv pip compile --quiet --universal --python-version 3.11 --generate-hashes --no-emit-index-url --no-annotate \
	  --no-header pyproject.toml requirements/build.in -o requirements/runtime.lock
	uv pip compile --quiet --universal --python-version 3.11 --generate-hashes --no-emit-index-url --no-annotate \
	  --no-header pyproject.toml requirements/build.in --group dev -c requirements/runtime.lock -o requirements/dev.lock

clean: ## Remove what setting up and testing made
	rm -rf $(VENV) .mypy_cache .ruff_cache .pytest_cache .hypothesis
