# make help lists the targets. Everything runs in .venv, which is made on the first call.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
# Processes that run tests: as many as cores of CI. Each imports and builds for itself.
WORKERS ?= 2
# Each of some hundred processes would compile the package again.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: help train test test-all laws lint types notebooks docs bench clean

help:  ## this list
	@grep -E '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 10

train: $(VENV)/ready  ## train the default model on the prose of this Python (about 2 minutes on 2 CPU cores)
	@$(BIN)/python train.py

PYTEST = OMP_NUM_THREADS=1 $(BIN)/python -m pytest -q -n $(WORKERS) --dist worksteal

# CONTRIBUTING.md has the rule of what is in it.
test: $(VENV)/compiled  ## each component and contract once, a run, resume, two processes (4 to 10 minutes on 2 CPU cores)
	@$(PYTEST) -m "not extended"

test-all: $(VENV)/compiled  ## all tests, as CI does (16 to 50 minutes on 2 CPU cores)
	@$(PYTEST)

laws: $(VENV)/compiled  ## random compositions under every law: make laws N=2000 SEED=7
	@OMP_NUM_THREADS=1 $(BIN)/python -m xformer_kit.laws --random $(or $(N),200) --seed $(or $(SEED),0) --processes $(WORKERS)

lint: $(VENV)/ready  ## style and types
	@$(BIN)/ruff check .
	@$(BIN)/ruff format --check .
	@$(BIN)/mypy

notebooks: $(VENV)/compiled  ## run the notebooks again and keep their outputs (about 2 minutes on one core)
	@$(BIN)/python -m notebooks

docs: $(VENV)/compiled  ## the reference as a site that needs no network: site/index.html; a broken link or a lost line fails
	@OMP_NUM_THREADS=1 $(BIN)/python -m docs

bench: $(VENV)/ready  ## speed and memory compared with peers; figures into benchmarks/results/
	@$(BIN)/pip install -q -c constraints.txt -e ".[bench]"
	@$(BIN)/python -m benchmarks

clean:  ## remove .venv and caches; runs stay in outputs/
	@rm -rf $(VENV) .pytest_cache .ruff_cache .mypy_cache .hypothesis build dist site *.egg-info
	@find . -name __pycache__ -type d -prune -exec rm -rf {} +

$(VENV)/ready: pyproject.toml constraints.txt
	@echo "Setting up $(VENV) (once; a few minutes, most of it torch)"
	@$(PYTHON) -c 'import sys; v = sys.version_info[:2]; sys.exit(0 if (3, 11) <= v < (3, 14) else f"xformer_kit needs Python 3.11 to 3.13; this is {v[0]}.{v[1]}. Try: make PYTHON=python3.12 ...")'
	@$(PYTHON) -m venv $(VENV)
	@$(BIN)/pip install -q -U -c constraints.txt pip  # that of Python 3.11 takes twice the time
	@$(BIN)/pip install -q --no-compile -c constraints.txt -e ".[dev]"
	@touch $@

# What a run imports, not 23,000 files, before several processes import it; lint does not wait.
$(VENV)/compiled: $(VENV)/ready
	@$(BIN)/python -c "import tasks.run.training_process"
	@touch $@
