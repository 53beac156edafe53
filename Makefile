# One command each. Everything runs inside .venv, which the first target that needs it creates.
PYTHON ?= python3
BIN := .venv/bin
READY := .venv/.ready

.DEFAULT_GOAL := help
.PHONY: help setup demo explore test test-slow lint format bench results clean

help:  ## what there is
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*##/\t/' | expand -t 14

setup: $(READY)  ## create .venv with every extra (does nothing when it is up to date)

$(READY): pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
	  { echo "capsnet needs Python 3.11 or newer; $(PYTHON) is $$($(PYTHON) -V 2>&1). Try: make PYTHON=python3.12 setup"; exit 2; }
	@test -x $(BIN)/python || $(PYTHON) -m venv .venv
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[all,dev]'
	@touch $@

demo: $(READY)  ## train a small CapsNet on MNIST and show what came out (about 3 minutes)
	$(BIN)/capsnet train demo
	@echo && echo "and for comparison the paper's network, trained for longer, from the box:"
	$(BIN)/capsnet evaluate capsnet-mnist

explore: $(READY)  ## draw a digit and turn the knobs of its capsules, in the browser
	$(BIN)/capsnet explore

test: $(READY)  ## every test but the slow ones
	$(BIN)/python -m pytest -q -n auto --maxprocesses 8 --dist loadfile -m "not slow"

test-slow: $(READY)  ## the long trainings and the kill loops
	$(BIN)/python -m pytest -q -m slow

lint: $(READY)  ## formatting, lint, types, and who may import whom
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/pyright
	$(BIN)/lint-imports

format: $(READY)  ## rewrite the files as `make lint` wants them
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

bench: $(READY)  ## what the performance claims are measured with
	$(BIN)/python -m benchmarks

results: $(READY)  ## write docs/RESULTS.md from the experiments that `capsnet reproduce` has finished
	$(BIN)/python -m tools.results

clean:  ## remove the environment and the caches, keep the runs
	rm -rf .venv dist build .pytest_cache .ruff_cache .import_linter_cache .hypothesis
