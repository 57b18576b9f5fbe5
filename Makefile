# graphode: everything runs in .venv, which is made on first use.

PYTHON ?= python3
# Passed to every `pip install`; empty it to watch the downloads: make demo PIP_FLAGS=
PIP_FLAGS ?= --quiet --disable-pip-version-check
# All cores; for instance: make test PYTEST_FLAGS="-n 0 -x -m 'not slow'"
PYTEST_FLAGS ?= -n auto

VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed
TORCH := $(filter torch==%,$(shell cat constraints.txt))

.PHONY: help install demo test lint format clean distclean

help:  ## show this list
	@sed -n 's/^\([a-z]*\):.*## /\1: /p' Makefile | while IFS=: read -r target text; do \
		printf '  make %-10s%s\n' "$$target" "$$text"; done

install: $(STAMP)  ## make .venv and install graphode into it

demo: $(STAMP)  ## particles that move: trains four models, prints a table, writes runs/multi-agent/demo.html
	$(BIN)/graphode run demo --out runs/multi-agent

test: $(STAMP)  ## run the tests
	$(BIN)/python -m pytest $(PYTEST_FLAGS)

lint: $(STAMP)  ## check style and types
	$(BIN)/ruff check
	$(BIN)/ruff format --check
	$(BIN)/basedpyright

format: $(STAMP)  ## mend what the style check can mend
	$(BIN)/ruff check --fix
	$(BIN)/ruff format

clean:  ## remove caches and build outputs
	rm -rf dist .pytest_cache .ruff_cache .hypothesis
	find . -path ./$(VENV) -prune -o -name __pycache__ -type d -prune -exec rm -rf {} +

distclean: clean  ## … and .venv; runs/ stays
	rm -rf $(VENV)

# torch comes first and by its exact version, so that no other package chooses one.
$(STAMP): pyproject.toml constraints.txt | $(BIN)/python
	@echo "Installing graphode into $(VENV): 2 to 4 minutes the first time on a fast line, most of it PyTorch."
	@echo "[1/2] $(TORCH)"
	@$(BIN)/python -m pip install $(PIP_FLAGS) -c constraints.txt $(TORCH)
	@echo "[2/2] graphode and the rest"
	@$(BIN)/python -m pip install $(PIP_FLAGS) -c constraints.txt -e '.[dev]'
	@touch $@
	@echo "Installed."

# A half-made environment is removed: its python would look finished to the next call.
$(BIN)/python:
	@command -v "$(PYTHON)" >/dev/null || { \
		echo "'$(PYTHON)' was not found. Install Python 3.11 or newer, or name one: make PYTHON=/path/to/python"; exit 1; }
	@"$(PYTHON)" -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { \
		echo "graphode needs Python 3.11 or newer, but '$(PYTHON)' is $$("$(PYTHON)" --version 2>&1). Name another: make PYTHON=python3.11"; exit 1; }
	@echo "Making $(VENV) with $$("$(PYTHON)" --version)."
	@"$(PYTHON)" -m venv $(VENV) || { \
		rm -rf $(VENV); echo "'$(PYTHON) -m venv' failed. On Debian and Ubuntu, install the package python3-venv."; exit 1; }
