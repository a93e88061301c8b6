# gpuwatch: every way to build, try and test it. `make help` lists them.

PYTHON ?= python3
VENV   := .venv
BIN    := $(VENV)/bin
STAMP  := $(VENV)/.made

NVML_SOURCES := $(wildcard tests/fakes/nvml/*.c)
NVML_FAKE    := tests/fakes/nvml/build/libnvidia-ml.so.1
CC           ?= cc

.DEFAULT_GOAL := help
.PHONY: help env run demo test lint packages fakes clean

help: ## this list
	@grep -hE '^[a-z]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/^([a-z]+):.*## (.*)/  make \1|\2/' | column -t -s '|' 2>/dev/null \
	  || grep -hE '^[a-z]+:.*## ' $(MAKEFILE_LIST)

env: $(STAMP) ## make .venv with gpuwatch and the tools of its developers

# Rebuilt when the dependencies may have changed; otherwise there is nothing to do.
$(STAMP): pyproject.toml
	@bash .ci/needs build "$(PYTHON)"
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	@$(BIN)/python -m pip install -qq -e '.[dev]'
	@touch $@

run: env ## the daemon in observe mode on this host (simulated where there is nothing to watch)
	@bash .ci/watch-here

demo: env ## the whole chain in a minute: no GPU, no root, no systemd
	@$(BIN)/gpuwatch demo

lint: env ## linters, types and import contracts
	@$(BIN)/python .ci/tiers.py lint

test: env ## every tier; TIERS="unit scenarios" for some of them
	@bash .ci/needs test "$(PYTHON)"
	@$(MAKE) --no-print-directory fakes
	@$(BIN)/python .ci/tiers.py $(TIERS)

packages: env ## build the deb into dist/
	@bash .ci/needs package "$(PYTHON)"
	@bash packaging/build-deb

fakes: $(if $(NVML_SOURCES),$(NVML_FAKE)) ## build what tests use in place of the driver's library

$(NVML_FAKE): $(NVML_SOURCES) $(wildcard tests/fakes/nvml/*.h)
	@mkdir -p $(@D)
	$(CC) -shared -fPIC -O2 -Wall -Wextra -Wl,-soname,libnvidia-ml.so.1 -o $@.new $(NVML_SOURCES) -lpthread
	@mv $@.new $@

clean: ## remove what was built here (the lab's roots in ~/.cache/gpuwatch-lab stay)
	rm -rf $(VENV) .venv-* build dist tests/fakes/nvml/build *.egg-info .hypothesis .import_linter_cache .mypy_cache .pytest_cache .ruff_cache
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
