# Everything from nothing: any target first makes the virtual environment and installs what it needs.
PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin

GFOOTBALL := gfootball==2.10.2
WHEELS := build/wheels
INSTALL_GFOOTBALL = $(BIN)/pip install --quiet --no-deps --no-index --find-links $(WHEELS) $(GFOOTBALL)
FOOTBALL_PACKAGES := cmake g++ libsdl2-image-dev libsdl2-ttf-dev libsdl2-gfx-dev libboost-python-dev \
	libboost-thread-dev libboost-system-dev libboost-filesystem-dev

.DEFAULT_GOAL := help
.PHONY: help install demo browser football football-packages football-wheel model model-packages test test-slow \
	test-football check bench-sleeping bench-learning bench-suite bench-lag bench-atari-step bench-costs bench-keeping bench-recurrent \
	bench-limits bench-throughput bench-soak bench-variance bench-peers bench-determinism bench-dashboard bench-watching report chaos \
	reference docs clean

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

football: $(VENV)/.football ## build Google Research Football and install it (some minutes, once)
	@$(BIN)/python -c "from htsrl.envs.football import Football; env = Football('academy_empty_goal_close'); \
	    env.reset(seed=0); env.step(0); print('football works')"

$(VENV)/.football: $(VENV)/.installed | football-packages
	$(BIN)/pip install --quiet --editable '.[football]'
	$(INSTALL_GFOOTBALL) 2>/dev/null || $(MAKE) football-wheel
	$(INSTALL_GFOOTBALL)
	touch $@

football-packages:
	@missing=$$(for package in $(FOOTBALL_PACKAGES); do dpkg -s $$package >/dev/null 2>&1 || echo $$package; done); \
	if [ -z "$$missing" ]; then exit 0; fi; \
	if ! command -v apt-get >/dev/null; then echo "football needs these packages and there is no apt-get to install them:" \
	    $$missing; echo "install what this system calls them, then run: make football FOOTBALL_PACKAGES="; exit 1; fi; \
	if [ "$$(id -u)" = 0 ]; then as_root=env; else as_root="sudo env"; fi; set -x; $$as_root apt-get update && \
	$$as_root DEBIAN_FRONTEND=noninteractive apt-get install --yes --no-install-recommends $$missing

# The build calls the python3 of PATH and imports psutil there, which is why the environment is put first.
football-wheel:
	$(BIN)/pip install --quiet --upgrade setuptools wheel psutil
	PATH="$(abspath $(BIN)):$$PATH" LDFLAGS=-s $(BIN)/pip wheel --no-deps --no-build-isolation --wheel-dir $(WHEELS) $(GFOOTBALL)

model: model-packages ## every interleaving and kill of the protocol, looked at by Spin (docs/protocol, some minutes, 1.1 GB)
	$(PYTHON) docs/protocol/check.py

model-packages:
	@for tool in spin gcc; do command -v $$tool >/dev/null || missing="$$missing $$tool"; done; \
	if [ -z "$$missing" ]; then exit 0; fi; \
	if ! command -v apt-get >/dev/null; then echo "the models need these programs and there is no apt-get to install them:" \
	    $$missing; echo "install what this system calls them, then run: make model"; exit 1; fi; \
	if [ "$$(id -u)" = 0 ]; then as_root=env; else as_root="sudo env"; fi; set -x; $$as_root apt-get update && \
	$$as_root DEBIAN_FRONTEND=noninteractive apt-get install --yes --no-install-recommends $$missing

check: install ## lint, format and types
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

browser: ## install Debian's chromium, in which `make test` looks at the dashboard's page
	@if command -v chromium >/dev/null || [ -n "$$HTSRL_CHROMIUM" ]; then exit 0; fi; \
	if ! command -v apt-get >/dev/null; then echo "there is no apt-get to install chromium with; install it as this system" \
	    "does, or name yours: HTSRL_CHROMIUM=/path/to/chromium make test"; exit 1; fi; \
	if [ "$$(id -u)" = 0 ]; then as_root=env; else as_root="sudo env"; fi; set -x; $$as_root apt-get update && \
	$$as_root DEBIAN_FRONTEND=noninteractive apt-get install --yes --no-install-recommends chromium fonts-dejavu-core || \
	{ echo "chromium could not be installed; without it \`make test\` skips the tests in a browser"; exit 1; }

test: check ## everything CI runs
	@command -v chromium >/dev/null || [ -n "$$HTSRL_CHROMIUM" ] || \
	    echo "there is no chromium: tests of the dashboard's page in a browser are skipped; \`make browser\` installs it"
	$(BIN)/pytest -n 2 --dist loadfile

test-slow: install ## the long suites: every barrier resumed, 100 signals, 10,000 damaged checkpoints (about an hour)
	$(BIN)/pytest -m slow

test-football: football ## the tests that need football, which `make test` skips where it is not built
	$(BIN)/pytest tests/unit/test_football*.py tests/determinism/test_simulator_digests.py

bench-atari-step: install ## CPU time of an Atari step against Gymnasium's wrappers and ale-py's vector environment
	$(BIN)/htsrl bench atari-step

bench-costs: football ## where the CPU time of a step goes, for Atari, football, HalfCheetah and CartPole
	$(BIN)/htsrl bench costs

bench-keeping: install ## what checkpoints and the spare process cost Pong, and how long a killed executor holds it up
	$(BIN)/htsrl bench keeping
	$(BIN)/htsrl bench restart

bench-recurrent: install ## what a recurrent core costs, on CartPole and Pong
	$(BIN)/htsrl bench recurrent

bench-peers: install ## the same work in Stable-Baselines3, CleanRL style, Sample Factory, TorchRL, RLlib and PufferLib
	$(BIN)/htsrl bench peers

bench-sleeping: install ## HTS against lockstep with environments that sleep, and Claim 1's bound
	$(BIN)/htsrl bench sleeping

bench-learning: install ## the recorded learning curves, all seeds (about an hour)
	$(BIN)/htsrl bench learning

bench-suite: install ## hts, its other corrections of the lag and sync on tasks of many kinds (hours; what has finished is kept)
	$(BIN)/htsrl bench suite --tasks choosing --ways sync hts hts-decoupled hts-uncorrected
	$(BIN)/htsrl bench suite --tasks confirming

bench-lag: install ## return per step against the lag between acting and learning (an hour of one core)
	$(BIN)/htsrl bench lag
	$(BIN)/htsrl bench lag-divergence

bench-limits: football ## what simulator, inference, learning and a hand-over cost alone, and the rooflines (5 minutes)
	$(BIN)/htsrl bench limits

bench-throughput: football ## all schedules beside the roofline: steps/s, CPU time, memory (about an hour)
	$(BIN)/htsrl bench throughput

bench-soak: install ## whether the memory of a run grows (25 minutes)
	$(BIN)/htsrl bench soak

bench-variance: install ## the paper's figures and headline with environments that sleep (10 minutes)
	$(BIN)/htsrl bench variance

bench-dashboard: install browser ## how quick the dashboard is with 100 runs of a million points (5 minutes, 0.5 GB)
	$(BIN)/htsrl bench dashboard

bench-watching: install browser ## what console, timeline, dashboard and evaluation cost a run (10 minutes)
	$(BIN)/htsrl bench watching

bench-determinism: install ## what reference shapes and the digest cost (15 minutes)
	$(BIN)/htsrl bench determinism

report: install ## all records on one page, build/report.html, and the documents' tables of results
	$(BIN)/htsrl bench report --readme README.md --results docs/results.md

reference: install ## write the pages of all settings and metrics, docs/reference, from where they are declared
	$(BIN)/python -m htsrl.cli.reference docs/reference

docs: install ## the documentation as a site, build/site (with its own packages: the extra `docs`)
	$(BIN)/pip install --quiet --editable '.[docs]'
	$(BIN)/mkdocs build --strict --site-dir build/site

chaos: install ## kill processes at random, over CartPole (200), Pong (50) and sleeping threads (50): no bit may differ
	$(BIN)/htsrl bench chaos

clean: ## remove the virtual environment and caches
	rm -rf $(VENV) .pytest_cache .mypy_cache .ruff_cache
