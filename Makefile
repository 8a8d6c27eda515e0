# Every target sets up what it needs. `make test` is what CI runs.
SHELL := /bin/bash
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.setup-stamp
JOBS ?= 2

.PHONY: setup demo test lint format bench soak align docs clean

setup: $(STAMP)

$(STAMP): pyproject.toml constraints.txt scripts/setup.sh
	@PYTHON=$(PYTHON) bash scripts/setup.sh $(VENV)
	@touch $@

demo: setup
	@bash scripts/demo.sh

test: setup
	@bash scripts/test.sh -n $(JOBS) -m "not soak and not align"

soak: setup
	@bash scripts/test.sh -n $(JOBS) -m soak

align: setup
	@bash scripts/test.sh -n $(JOBS) -m align

lint: setup
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

format: setup
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

docs: setup
	$(BIN)/mkdocs build --strict --quiet --site-dir site

bench: setup
	@PATH="$(CURDIR)/$(BIN):$$PATH" bash scripts/bench.sh

clean:
	rm -rf $(VENV) .pytest_cache .mypy_cache .ruff_cache .hypothesis out site .matrix/runs .matrix/times .matrix/bisect
