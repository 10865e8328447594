# The two commands of the README are `make demo` and `make test`; `make help` lists the rest.
PYTHON ?= python3
VENV   := .venv
BIN    := $(VENV)/bin
STAMP  := $(VENV)/.penstock-stamp
JOBS   ?= 2
PYTEST := $(BIN)/python -m pytest

# Nothing may reach out of the folder it is run in.
export PIP_DISABLE_PIP_VERSION_CHECK := 1
export PYTHONPATH :=

.PHONY: help setup demo test check format bench fuzz spark spark-matrix cluster fault damage chaos soak kafka lock clean
.DEFAULT_GOAL := help

help:  ## say what each target does
	@grep -E '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:[^#]*## /\t/' | expand -t 14

setup: $(STAMP)  ## create .venv with the locked packages and penstock itself (quick the second time)

$(STAMP): requirements.lock pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null || \
	  { echo "penstock needs Python 3.11 or newer; try: make $(or $(MAKECMDGOALS),setup) PYTHON=python3.12" >&2; exit 1; }
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	@scripts/ensure_java.sh
# Of all these modules few are ever loaded: bytecode is written when they are.
	$(BIN)/python -m pip install --quiet --no-compile --require-hashes -r requirements.lock
	$(BIN)/python -m pip install --quiet --no-build-isolation --no-deps -e .
	@touch $@

demo: setup  ## generate a lake of clicks, run a sliding query over it on Spark, beside Spark's own way
	$(BIN)/penstock demo

test: setup  ## everything CI runs: behaviour, laws (ruff, mypy, imports, doctests), security, documents
	$(PYTEST) -n $(JOBS) --dist worksteal

check: setup  ## before each commit, under a minute: ruff, mypy, import law, fast tests
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports --no-logo
	$(PYTEST) -n $(JOBS) --dist worksteal -q -m "not slow" --hypothesis-profile=quick

format: setup  ## let ruff repair what it can
	$(BIN)/ruff check --fix-only --quiet .
	$(BIN)/ruff format .

docs: setup  ## build the documents as a site, in build/site
	$(BIN)/mkdocs build --strict --quiet
	@echo "build/site/index.html"

bench: setup  ## a benchmark beside other engines (SUITE=ysb, FLAGS="--quick"; SUITE=--help lists them)
	$(BIN)/python -m benchmarks $(or $(SUITE),ysb) $(FLAGS)

fuzz: setup  ## a long Hypothesis campaign over every property (FUZZ=path narrows it)
	$(PYTEST) -n $(JOBS) --hypothesis-profile=fuzz --ignore=tests/law --ignore=tests/docs $(or $(FUZZ),tests)

spark: setup  ## every test on Spark, of which `make test` runs a slice
	$(PYTEST) -q --campaign tests/spark

spark-matrix: setup  ## tests on Spark with each supported version of it (VERSIONS=4.0.5,4.1.4 SLICE=1)
	$(BIN)/python scripts/spark_matrix.py $(if $(VERSIONS),--versions $(VERSIONS)) $(if $(SLICE),--slice)

cluster: setup  ## every kind of query on a standalone cluster whose executors have no packages
	$(PYTEST) -q --campaign tests/cluster

fault: setup  ## kill drivers, JVMs and workers of streaming queries (KILLS=200, SEED=0, MINUTES=600); goes on where it was
	$(PYTEST) -q --campaign tests/fault
	$(BIN)/python -m tests.fault.campaign --kills $(or $(KILLS),200) --seed $(or $(SEED),0) --minutes $(or $(MINUTES),600)

damage: setup  ## damage files of every format and scan them: read or refused by name, never a crash (FILES=10000, SEED=0)
	$(BIN)/python -m tests.security.damage.campaign --files $(or $(FILES),10000) --seed $(or $(SEED),0)

chaos: setup  ## run generated queries with adaptation forced at every task, 100,000 in all; goes on where it was (QUERIES=100000)
	$(BIN)/python -m tests.chaos.campaign --queries $(or $(QUERIES),100000)

soak: setup  ## let queries run for two hours while keys come and go: memory, state, files flat (SOAK_MINUTES=120)
	$(BIN)/python -m tests.fault.soak --minutes $(or $(SOAK_MINUTES),120)

kafka: setup  ## tests with a real Kafka broker, fetched by Maven coordinates
	$(PYTEST) -q --campaign tests/kafka

lock: setup  ## pin again everything pyproject.toml asks for (LOCK=--upgrade takes newer versions)
	$(BIN)/python scripts/lock.py $(LOCK)

clean:  ## remove what the other targets made
	rm -rf $(VENV) .cache .hypothesis .mypy_cache .pytest_cache .ruff_cache .import_linter_cache build dist
	find src benchmarks tests -name __pycache__ -type d -prune -exec rm -rf {} + 2>/dev/null || true
