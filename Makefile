# One command each. Everything runs inside .venv, which the first target that needs it creates.
PYTHON ?= python3
BIN := .venv/bin
READY := .venv/.ready
# one more than cores: tests also wait, for a browser, a server or another process
WORKERS := $(shell n=$$(nproc 2>/dev/null || echo 2); [ $$n -gt 7 ] && echo 8 || echo $$((n + 1)))

.DEFAULT_GOAL := help
.PHONY: help setup demo explore test test-slow lint format docs docs-full docs-serve bench results clean

help:  ## list the targets
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*##/\t/' | expand -t 14

setup: $(READY)  ## create .venv with every extra (does nothing when it is up to date)

$(READY): pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
	  { echo "capsnet needs Python 3.11 or newer; $(PYTHON) is $$($(PYTHON) -V 2>&1). Try: make PYTHON=python3.12 setup"; exit 2; }
	@test -x $(BIN)/python || $(PYTHON) -m venv .venv
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[all,dev]'
	@touch $@

demo: $(READY)  ## train a small CapsNet on MNIST and show the result (about 3 minutes)
	$(BIN)/capsnet train demo
	@echo && echo "For comparison, the bundled network of the paper, trained for longer:"
	$(BIN)/capsnet evaluate capsnet-mnist

explore: $(READY)  ## open the explorer in the browser: draw a digit, move the values of its capsules
	$(BIN)/capsnet explore

test: $(READY)  ## run all tests except the slow ones
	$(BIN)/python -m pytest -q -n $(WORKERS) --dist worksteal -m "not slow"

test-slow: $(READY)  ## run the slow tests: all trainings and exports, kill loops
	$(BIN)/python -m pytest -q -m slow

lint: $(READY)  ## check formatting, lint, types and the import layers
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/pyright
	$(BIN)/lint-imports

format: $(READY)  ## format the files and apply automatic fixes
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

docs: $(READY)  ## build the documentation into build/site; broken links and references fail
	NO_MKDOCS_2_WARNING=1 $(BIN)/python -m mkdocs build

docs-full: $(READY)  ## the same with the explorer as one of its pages (fetches onnxruntime-web)
	rm -rf build/explorer && $(BIN)/capsnet explore --static build/explorer
	CAPSNET_SITE_EXPLORER=build/explorer NO_MKDOCS_2_WARNING=1 $(BIN)/python -m mkdocs build

docs-serve: $(READY)  ## show the documentation on this machine, and again after every change
	NO_MKDOCS_2_WARNING=1 $(BIN)/python -m mkdocs serve

bench: $(READY)  ## compare the speed with a textbook implementation: one table (about 6 minutes)
	$(BIN)/python -m benchmarks

results: $(READY)  ## write docs/RESULTS.md from finished experiments
	$(BIN)/python -m tools.results

clean:  ## remove the environment and the caches, but not the runs
	rm -rf .venv dist build .pytest_cache .ruff_cache .import_linter_cache .hypothesis
