# Everything a person does with this checkout. Each target sets up what it needs.
.DEFAULT_GOAL := help
SHELL := /bin/bash
.SHELLFLAGS := -eu -o pipefail -c

PYTHON ?= $(shell for p in python3 python3.14 python3.13 python3.12 python3.11; do \
	command -v $$p >/dev/null 2>&1 && $$p -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null && echo $$p && break; done)
VENV := .venv
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip --disable-pip-version-check
SOURCES := client quorum node tests benchmarks examples docs deploy proto hatch_build.py
# Many tests wait for processes most of the time: two workers more than there are cores.
WORKERS ?= $(shell $(PYTHON) -c 'import os; print(min(6, 2 + (os.cpu_count() or 1)))')
# Files of the quick tests are in memory where a gigabyte is free, since most of them sync what they write. Some run files.
MEMORY = $(shell [ "$$(df -kP /dev/shm 2>/dev/null | awk 'NR == 2 {print $$4}')" -ge 1000000 ] 2>/dev/null && \
	! grep -q ' /dev/shm .*noexec' /proc/mounts && echo TMPDIR=/dev/shm)
# The quick tests wait more than they work, so that more of them run at a time.
QUICK_WORKERS ?= $(shell $(PYTHON) -c 'import os; print(min(8, 1 + 2 * (os.cpu_count() or 1)))')
FAULTS ?= kill,stop,pause,slow,partition,delay,disk,clock
VERSION := $(shell sed -n 's/^version = "\(.*\)"/\1/p' pyproject.toml)
NATIVE := $(shell find client quorum node -name '*.px[dy]')

.PHONY: help demo test quick lint format proto docs bench bench-kafka bench-pythons sim chaos compat upgrade soak spark-cluster k8s containers secured build clean

help: ## Show this list
	@grep -hE '^[a-z0-9-]+:.*## ' $(MAKEFILE_LIST) | awk -F ':.*## ' '{printf "  make %-13s %s\n", $$1, $$2}'

demo: $(VENV)/.demo ## Run the flights demo: a cluster, a crash, Spark, and the proof that nothing was lost
	@$(BIN)/python -m examples.flights $(ARGS)

test: $(VENV)/.dev ## Run the tests in a few processes (ARGS="-k name" narrows them down)
	@$(BIN)/python -m pytest -n $(WORKERS) --dist worksteal $(ARGS)

quick: $(VENV)/.dev ## Run most unit tests with few examples each: the inner loop (ARGS="-k name")
	@$(MEMORY) $(BIN)/python -m pytest -n $(QUICK_WORKERS) --dist worksteal tests/unit tests/scenario --hypothesis-profile=quick \
		$(patsubst %,--ignore=tests/unit/%,chaos chaos_runner benchmarks deploy examples cli/test_cli_dev.py) \
		-m "not costly and not slow and not sim and not chaos and not compat" -k "not crash" $(ARGS)

lint: $(VENV)/.dev ## Check style, types, layers and that generated files are up to date
	@$(BIN)/ruff check $(SOURCES)
	@$(BIN)/ruff format --check $(SOURCES)
	@$(BIN)/mypy
	@$(BIN)/lint-imports --no-cache
	@$(BIN)/python proto/generate.py

format: $(VENV)/.dev ## Format the code
	@$(BIN)/ruff check --fix $(SOURCES)
	@$(BIN)/ruff format $(SOURCES)

proto: $(VENV)/.dev ## Generate client/tidelog/v1 from proto/
	@$(BIN)/python proto/generate.py --write

docs: $(VENV)/.dev ## Generate the references of settings and metrics and the dashboards, and build the documentation site in build/site
	@$(BIN)/python docs/generate_configuration.py --write
	@$(BIN)/python docs/generate_connect_settings.py --write
	@$(BIN)/python docs/generate_metrics.py --write
	@$(BIN)/python deploy/monitoring/generate_dashboards.py --write
	@NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict

bench: $(VENV)/.dev ## Run the benchmarks and print their table (ARGS="--only log", ARGS=--quick)
	@$(BIN)/python -m benchmarks $(ARGS)

bench-kafka: $(VENV)/.dev ## Measure next to Apache Kafka; needs Java, Go, and Maven or KAFKA_HOME (ARGS=--quick, ARGS="--only produce")
	@$(BIN)/python -m benchmarks.peers $(ARGS)

bench-pythons: $(VENV)/.dev ## Compare versions of Python; needs Go (PYTHONS="PYTHON PYTHON", ARGS=--quick)
	@$(BIN)/python -m benchmarks.pythons $(PYTHONS) $(ARGS)

sim: $(VENV)/.dev ## Run the simulations over many seeds (SEEDS=20000, SIM=raft|cluster|transactions|bugs|tests|properties), or one again (SEED=7, ACTIONS=3,5)
	@PYTHONPATH=tests:tests/support $(BIN)/python -m sim.campaign $(if $(SIM),--part $(SIM)) $(if $(SEEDS),--seeds $(SEEDS)) \
		$(if $(SEED),--seed $(SEED)) $(if $(ACTIONS),--actions $(ACTIONS)) -- $(ARGS)

chaos: $(VENV)/.dev ## Put a real cluster under faults and check what its clients saw (DURATION=5m, SEED=7, DRIVER=local, FAULTS=kill,pause)
	@$(BIN)/tidelog chaos run --driver $(or $(DRIVER),netns) --faults $(FAULTS) --duration $(or $(DURATION),5m) \
		$(if $(SEED),--seed $(SEED)) --output $(or $(OUTPUT),build/chaos-$(shell date +%Y%m%d-%H%M%S)) $(ARGS)
	@TIDELOG_CHAOS_ROUNDS=$(or $(ROUNDS),10) $(BIN)/python -m pytest -m chaos --timeout 3600 tests/integration tests/chaos

compat: $(VENV)/.dev ## Point Kafka's clients, its shell tools, Kafka Streams, Spark's Kafka source and kafka-python's own tests at a cluster (PEER=kafka: at Kafka's); run all examples of streams
	@TIDELOG_COMPAT=1 TIDELOG_COMPAT_PEER=$(or $(PEER),tidelog) $(BIN)/python -m pytest tests/compat tests/integration/test_stream_examples.py tests/integration/test_connect*.py --timeout 300 $(ARGS)

upgrade: $(VENV)/.dev ## Upgrade a cluster from an earlier release and back, under load (FROM=git ref; default: the newest tag)
	@TIDELOG_UPGRADE_FROM="$(FROM)" $(BIN)/python -m pytest tests/upgrade --timeout 900 $(ARGS)

soak: $(VENV)/.dev ## Run a cluster under load and check that memory, descriptors, tasks and disk stay flat (MINUTES=60)
	@$(BIN)/python -m benchmarks.soak --minutes $(or $(MINUTES),60) $(ARGS)

spark-cluster: $(VENV)/.dev ## Run the tests of Spark on a cluster of processes: a master, and workers with executors of 512 MB
	@TIDELOG_SPARK_MASTER=standalone $(BIN)/python -m pytest --timeout 900 \
		$(patsubst %,tests/integration/test_spark_%.py,batch streaming failover sink sink_crashes cluster) $(ARGS)

k8s: $(VENV)/.dev ## Run Spark and Tidelog on the Kubernetes of kubectl (LOAD="kind load docker-image" brings it the images)
	@docker build $(BUILD) --target build --tag tidelog-build:$(VERSION) .
	@docker build $(BUILD) --tag tidelog:$(VERSION) .
	@docker build $(BUILD) --file deploy/spark/Dockerfile --tag tidelog-spark:$(VERSION) .
	@docker build $(BUILD) --file deploy/operator/Dockerfile --tag tidelog-operator:$(VERSION) .
	@docker tag tidelog:$(VERSION) tidelog:$(VERSION)-next
	@$(or $(LOAD),true) tidelog:$(VERSION) tidelog:$(VERSION)-next tidelog-spark:$(VERSION) tidelog-operator:$(VERSION)
	@TIDELOG_KUBERNETES=1 $(BIN)/python -m pytest --timeout 3600 tests/kubernetes $(ARGS)

containers: $(VENV)/.dev ## Build the image and run tests/containers on the Docker engine (TIDELOG_IMAGE=tidelog:0.1.0: on an image that exists)
	@TIDELOG_CONTAINERS=1 $(BIN)/python -m pytest --timeout 900 tests/containers $(ARGS)

secured: $(VENV)/.dev ## Run the contract suite on secured clusters (SECURITY=sasl_ssl)
	@TIDELOG_CONTRACT_SECURITY=$(or $(SECURITY),sasl_ssl) $(BIN)/python -m pytest -n $(WORKERS) --dist worksteal tests/contract \
		-k "not fake and not raft_engine" $(ARGS)

build: $(VENV)/.dev ## Build the wheel and the source distribution into dist/, and check what PyPI would show
	@$(PIP) install --quiet 'build>=1.2' 'twine>=6.1'
	@$(BIN)/python -m build --no-isolation --outdir dist .
	@$(BIN)/twine check --strict dist/*-$(VERSION)*

clean: ## Remove what the other targets made
	rm -rf $(VENV) build dist demo-output .pytest_cache .mypy_cache .ruff_cache .hypothesis
	find client quorum node -name '*.so' -delete

# The environment: once per change of pyproject.toml or of a compiled source.
$(VENV)/bin/python:
	@test -n "$(PYTHON)" || { echo "Tidelog needs Python 3.11 or newer; set PYTHON=/path/to/python3" >&2; exit 1; }
	@echo "Creating $(VENV) with $$($(PYTHON) --version)"
	@$(PYTHON) -m venv $(VENV)

$(VENV)/.demo $(VENV)/.dev: $(VENV)/bin/python pyproject.toml hatch_build.py $(NATIVE)
	@echo "Installing Tidelog with its $(patsubst .%,%,$(notdir $@)) dependencies"
	@$(PIP) install -e '.[$(patsubst .%,%,$(notdir $@))]' \
		| grep --line-buffered -vE '^(Requirement already|  (Preparing|Created|Stored|Building))' || test $${PIPESTATUS[0]} -eq 0
	@touch $@
