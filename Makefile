# Every target works on a clean clone: what it needs is set up first (scripts/setup.py, numbered steps, cheap when done).
PYTHON ?= python3
BIN := .venv/bin

.DEFAULT_GOAL := help
.PHONY: help demo demo-ddp test setup setup-demo serve bench bench-server bench-ranks bench-peers soak fuzz calibrate calibrate-alerts test-versions lint format web screenshots clean

help: ## Show this list
	@grep -E '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | awk -F'\t' '{printf "  make %-13s %s\n", $$1, $$2}'

demo: setup-demo ## Install what is needed, start the server and watch five real trainings live
	@$(BIN)/halfscope demo $(ARGS)

demo-ddp: setup-demo ## The same with one training of two ranks, of which one overflows now and then
	@$(BIN)/halfscope demo --ranks $(ARGS)

test: setup ## Install everything and run every check: lint, types, import rules, web, Python and browser tests
	@$(BIN)/python scripts/checks.py $(GROUPS)

setup: ## Make .venv with everything a developer needs, the built web app, Chromium and PostgreSQL
	@$(PYTHON) scripts/setup.py dev

setup-demo:
	@$(PYTHON) scripts/setup.py demo

serve: setup-demo ## Start the server on the embedded SQLite
	@$(BIN)/halfscope serve $(ARGS)

bench: setup ## Measure speed against baselines in the same run; prints "name value unit" lines, the summary last
	@$(BIN)/python -m tests.bench $(ARGS)

bench-server: setup ## Measure what the server takes in, stores and shows: paced, at full load and before twenty viewers; about five minutes
	@$(BIN)/python -m tests.bench --only 'server.*' $(ARGS)

bench-ranks: setup ## Measure one server under a job of 1,024 ranks on 128 nodes
	@$(BIN)/python -m tests.bench --only 'ranks.*' $(ARGS)

bench-peers: setup ## Measure the cost beside trackers and debug tools, which get an environment of their own; about ten minutes
	@$(BIN)/python -m tests.bench.peers $(ARGS)

soak: setup ## The long forms: a server away under load, 500 kills of each process, the demo's healthy runs to their end
	@HALFSCOPE_TEST_OUTAGE_S=60 $(BIN)/python -m pytest -q tests/server/test_transport_end_to_end.py -k stopped_for_a_while
	@HALFSCOPE_TEST_DEMO=1 $(BIN)/python -m pytest -q tests/agent/demo/test_train.py -k calm_from_end_to_end
	@HALFSCOPE_TEST_KILLS=500 $(BIN)/python -m pytest -q tests/server/test_killed.py
	@HALFSCOPE_TEST_MODEL_EXAMPLES=500 $(BIN)/python -m pytest -q -o timeout=0 tests/server/test_nothing_lost.py
	@HALFSCOPE_TEST_LONG=1 $(BIN)/python -m pytest -q tests/agent/test_surroundings.py

fuzz: setup ## Look for ways to lose, double or misread records, each time others; prints "name value unit" lines
	@$(BIN)/python -m tests.fuzz $(ARGS)

calibrate: setup ## Compare some two hundred real trainings: false alarms among healthy ones, and what is found of bad ones
	@$(BIN)/python -m tests.calibrate $(ARGS)

calibrate-alerts: setup ## Try every preset on some 190 real trainings: false alarms of healthy ones, what is said of bad ones
	@$(BIN)/python -m tests.calibrate.alarms $(ARGS)

test-versions: setup ## Run the tests of Lightning, Transformers and Accelerate with older versions of them
	@$(BIN)/python scripts/versions.py $(ARGS)

lint: setup ## Only lint, types and import rules
	@$(BIN)/python scripts/checks.py lint types imports

format: setup ## Let ruff and Biome rewrite the code in the project's style
	@$(BIN)/ruff format . && $(BIN)/ruff check --fix . && npm --prefix web run format

web: setup-demo ## Build the web app into web/dist

screenshots: setup ## Save every page, light and dark, wide and narrow, into build/screenshots
	@$(BIN)/python tests/e2e/screenshots.py build/screenshots

clean: ## Remove .venv, the built web app and all caches
	rm -rf .venv web/node_modules web/dist build dist .pytest_cache .mypy_cache .ruff_cache .hypothesis .import_linter_cache
