# The two commands a newcomer needs are `make demo` and `make test`; each makes its own virtual environment.
PYTHON ?= python3
WORKERS ?= auto
TESTS ?=
ZOOKEEPER_WHEEL := wheels/zookeeper
SLOWEST := --durations=10 --durations-min=1
VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/ready
DEMO := $(VENV)/demo-ready

define CHECKOUT
test -L barnabas/broker || { echo "barnabas/broker is no symbolic link: clone with git config core.symlinks=true"; exit 1; }; \
$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { echo "Python 3.11 or newer is needed: make PYTHON=python3.11"; exit 1; }
endef

.PHONY: setup demo test quick test-all test-compiled soak spark-lowest check format bench bench-quick bench-compiled \
  docs vendor image wheel compiled-wheel clean

setup: $(READY)            ## a virtual environment with everything that works on this repository

# One environment, filled in two steps: `make demo` installs what the demonstration needs, all others add the rest.
$(READY): pyproject.toml
	@$(CHECKOUT)
	@echo "making $(VENV) with all that tests use: about 700 MB to fetch and 1.6 GB on disk, Spark most of it"
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --disable-pip-version-check --editable '.[dev]'
	@touch $(DEMO) $(READY)

$(DEMO): pyproject.toml
	@$(CHECKOUT)
	@$(PYTHON) -m barnabas.console.development.demo_setup $(VENV)
	@touch $(DEMO)

demo: $(DEMO)             ## the main job, start to end: a cluster, a group, a lost node, its offsets still there
	$(BIN)/python -m barnabas.console.demo

test: $(READY)             ## every test (or TESTS=...), against real ZooKeeper and real clients; then the slowest ten
	$(BIN)/python -m pytest -n $(WORKERS) --dist loadfile $(SLOWEST) $(TESTS)

quick: $(READY)            ## unit and model tests alone (tests/quick.txt): what one runs while working
	$(BIN)/python -m pytest -q -n $(WORKERS) --dist loadfile $(SLOWEST) $$(sed -n 's/^!/--ignore=/p; /^tests/p' tests/quick.txt)

test-all: $(READY)         ## the same in development mode, one after the other, with all that takes long
	$(BIN)/python -X dev -m pytest -m "nightly or not nightly" --hypothesis-profile=searching $(TESTS)

soak:                      ## `make test` three times in a row in a fresh clone, beside stress-ng
	tests/soak.sh

spark-lowest:              ## the pipelines on the lowest releases of Spark and Arrow that they support
	$(PYTHON) -m venv $(VENV)/spark-lowest
	$(VENV)/spark-lowest/bin/python -m pip install --quiet --disable-pip-version-check --editable '.[spark,test,up]' \
	  'pyspark==4.2.0' 'pyarrow==18.0.0'
	$(VENV)/spark-lowest/bin/python -m pytest tests/pipeline

check: $(READY)            ## style, types, layers, citations, what a file may be like and what docs/ says of the code
	$(BIN)/python -m ruff format --check .
	$(BIN)/python -m ruff check .
	$(BIN)/python -m mypy
	$(BIN)/lint-imports
	$(BIN)/python -m pytest -q tests/test_tidy.py tests/test_citations.py tests/test_docs.py
	$(BIN)/python -m codespell_lib README.md CHANGELOG.md docs protocol coordinator client broker console pipeline tests benchmarks --skip 'tests/fuzz/corpus'

format: $(READY)           ## rewrite what the formatter can
	$(BIN)/python -m ruff format .
	$(BIN)/python -m ruff check --fix .

bench: $(READY)            ## what we claim about speed, beside Apache Kafka: the table of docs/benchmarks.md, half an hour
	$(BIN)/python -m benchmarks.table --against kafka

bench-quick: $(READY)      ## the same, a minute a row: fails where a ratio is below those of benchmarks/ratios.json
	$(BIN)/python -m benchmarks.table --against kafka --quick

docs: $(READY)             ## the generated tables in docs/
	$(BIN)/python -m barnabas.console.reference docs

vendor: $(READY)           ## the console's scripts of others anew from npm, the same bytes as before
	$(BIN)/python -m barnabas.console.web.vendored

image:                     ## the container image barnabas:dev, on a Debian base made here (root, debootstrap) or on BASE_IMAGE
	$(PYTHON) -m barnabas.console.development.fetch_jars dist/zookeeper-jars
	docker build --network host --build-arg BASE_IMAGE="$${BASE_IMAGE:-$$(container/base.sh)}" --tag barnabas:dev .

wheel: $(READY)            ## dist/*.whl and dist/*.tar.gz: ours, and ZooKeeper's jars as barnabas-zookeeper
	$(BIN)/python -m build --quiet --outdir dist
	$(BIN)/python -m barnabas.console.development.zookeeper_wheel $(ZOOKEEPER_WHEEL)/barnabas_zookeeper
	$(BIN)/python -m build --quiet --wheel --outdir dist $(ZOOKEEPER_WHEEL)

compiled-wheel: $(READY)   ## dist/compiled/*.whl for this Python and machine, hot modules compiled: a C compiler, 2 minutes
	HATCH_BUILD_HOOK_ENABLE_CUSTOM=1 $(BIN)/python -m build --quiet --wheel --outdir dist/compiled

test-compiled: $(READY)    ## unit, model and client tests against a compiled wheel, in an environment of its own
	$(BIN)/python -m tests.compiled --workers $(WORKERS) $(TESTS)

bench-compiled: $(READY)   ## what compiling brings: benchmarks/hot_path.py interpreted and compiled, in turns
	$(BIN)/python -m benchmarks.compiled

clean:
	rm -rf $(VENV) dist build .pytest_cache .mypy_cache .ruff_cache .hypothesis .import_linter_cache .coverage*
