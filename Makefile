# Two commands: `make run` (the whole life of a Conductor on the embedded default) and `make test`.
# Each makes its own virtual environment first; PYTHON=… names another CPython 3.11.

PYTHON ?= python3.11
VENV   ?= .venv
BIN    := $(VENV)/bin
STAMP  := $(VENV)/.installed
RECIPE ?= quickstart
SEED   ?=

# No tool reports home, and LiteLLM does not download its price table at every import.
export DAGSTER_DISABLE_TELEMETRY := yes
export MLFLOW_DISABLE_TELEMETRY := true
export DVC_NO_ANALYTICS := true
export GX_ANALYTICS_ENABLED := false
export VLLM_NO_USAGE_STATS := 1
export HF_HUB_DISABLE_TELEMETRY := 1
export DO_NOT_TRACK := 1
export LITELLM_LOCAL_MODEL_COST_MAP := True
export TQDM_DISABLE := 1

.DEFAULT_GOAL := help
.PHONY: help venv run ask dev test browser lint bench clean distclean

help:  ## this list
	@awk -F ':.*## ' '/^[a-z]+:.*## /{printf "  make %-10s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

venv: $(STAMP)  ## the virtual environment, from pyproject.toml and constraints.txt

$(STAMP): pyproject.toml constraints.txt
	@command -v $(PYTHON) >/dev/null || { echo "$(PYTHON) not found: install CPython 3.11 or name one, make PYTHON=/path/to/python3.11" >&2; exit 1; }
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --constraint constraints.txt --editable '.[dev]'
	@touch $@

run: $(STAMP)  ## the whole lifecycle: RECIPE=quickstart SEED=0
	@$(BIN)/python -m pipelines.run --recipe $(RECIPE) $(if $(SEED),--seed $(SEED))

ask: $(STAMP)  ## ask the champion: Q="What is …?"
	@$(BIN)/python -m ops.ask "$$Q"
# As it was typed: a dollar sign in a question is no variable of make's.
override export Q := $(value Q)

dev: $(STAMP)  ## the Dagster UI and MLflow, until Ctrl-C
	@$(BIN)/python -m pipelines.dev

test: $(STAMP)  ## the tests
	$(BIN)/python -m pytest

browser: $(STAMP)  ## the UIs in Debian's chromium, with screenshots in .podium/screenshots
	PLAYWRIGHT_SKIP_BROWSER_DOWNLOAD=1 $(BIN)/python -m pip install --quiet --constraint constraints.txt --editable '.[browser]'
	PODIUM_SCREENSHOTS=$${PODIUM_SCREENSHOTS:-.podium/screenshots} $(BIN)/python -m pytest tests/browser

lint: $(STAMP)  ## ruff (style and layers) and mypy --strict on ops
	$(BIN)/ruff check .
	$(BIN)/mypy

seeds: $(STAMP)  ## the quickstart on three seeds, into docs/results.md: SEEDS="1 2 3"
	@$(BIN)/python -m pipelines.seeds $(SEEDS)

bench: $(STAMP)  ## the benchmarks, into .podium/bench.json
	@$(BIN)/python -m tests.bench

clean:  ## tool caches and run-time state, but not what was paid for (.podium/cache, the ledger)
	rm -rf build dist *.egg-info .mypy_cache .pytest_cache .ruff_cache .hypothesis
	if [ -d .podium ]; then find .podium -mindepth 1 -maxdepth 1 ! -name cache ! -name 'ledger.sqlite*' -exec rm -rf {} +; fi

distclean: clean  ## … and that, and the virtual environment
	rm -rf .podium $(VENV)
