# Everything from nothing: any target first makes the virtual environment and installs what it needs.
PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin

.DEFAULT_GOAL := help
.PHONY: help install demo test check bench-sleeping bench-learning clean

help: ## show this list
	@grep -E '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 18

$(BIN)/python:
	$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "htsrl needs Python 3.11 or newer, set PYTHON=")'
	$(PYTHON) -m venv $(VENV)

$(VENV)/.installed: pyproject.toml | $(BIN)/python
	$(BIN)/pip install --quiet --editable '.[dev]'
	touch $@

install: $(VENV)/.installed ## make the virtual environment and install htsrl with all it needs

demo: install ## train PPO on CartPole-v1 until it is solved, and show the result
	$(BIN)/htsrl train CartPole-v1 --algo ppo --schedule hts --total-steps 300000 --stop-at-return 475 --eval-episodes 100

check: install ## lint, format and types
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

test: check ## everything CI runs
	$(BIN)/pytest

bench-sleeping: install ## HTS against lockstep with environments that sleep, and Claim 1's bound
	$(BIN)/htsrl bench sleeping

bench-learning: install ## the recorded learning curves, all seeds (about an hour)
	$(BIN)/htsrl bench learning

clean: ## remove the virtual environment and caches
	rm -rf $(VENV) .pytest_cache .mypy_cache .ruff_cache
