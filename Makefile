# The whole workflow. Each target does its own set-up and can be run again.
PYTHON ?= python3
VENV   := .venv
BIN    := $(VENV)/bin
STAMP  := $(VENV)/.installed
DEMO_STAMP := $(VENV)/.installed-demo
TYPES  := build/types
TYPED  := __init__.py __main__.py _version.py aio.py errors.py py.typed partitioner connector streaming compaction benchmarks
# Broker tests mostly wait, so several processes share a core; JOBS=0 runs them one by one.
JOBS   ?= 5
DEALT  := --dist loadfile --no-loadscope-reorder
PARALLEL := $(if $(filter 0,$(JOBS)),,-n $(JOBS) $(DEALT))
CONTRACT := tests/connector/local tests/connector/cli/test_topics.py tests/integration/test_growth.py \
            tests/integration/test_broker_failures.py
PACKAGES := -p keyorder.partitioner -p keyorder.connector -p keyorder.streaming -p keyorder.compaction -p keyorder.benchmarks

.PHONY: help setup demo test simulate writers test-long test-docker test-docker-all chaos spark-chaos spark-stress compaction-histories conformance-removal matrix connect-chaos connect-parity lint check format docs bench clean

help:  ## the targets
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | awk -F':.*## ' '{printf "  make %-12s %s\n", $$1, $$2}'

$(STAMP): pyproject.toml _version.py
	@echo "==> installing keyorder and its tools into $(VENV)"
	@$(PYTHON) -m venv $(VENV)
	@$(BIN)/pip install --quiet --upgrade pip
	@$(BIN)/pip install --quiet --progress-bar on --editable '.[dev]'
	@touch $@ $(DEMO_STAMP)

$(DEMO_STAMP): pyproject.toml _version.py
	@echo "==> installing keyorder with what the demonstration needs into $(VENV)"
	@$(PYTHON) -m venv $(VENV)
	@$(BIN)/pip install --quiet --upgrade pip
	@$(BIN)/pip install --quiet --progress-bar on --editable '.[demo,jre]'
	@touch $@

setup: $(STAMP)  ## the virtual environment

demo: $(DEMO_STAMP)  ## grow a topic under load on an embedded real Kafka: the stock client breaks order, keyorder does not
	@$(BIN)/keyorder demo

test: $(STAMP)  ## every test, on real brokers started for the run
	@$(BIN)/python -Im pytest tests -m "not docker and not long" $(PARALLEL)

test-long: $(STAMP)  ## the tests that take minutes each: kills, a Spark cluster, notebooks, real cleaners
	@$(BIN)/python -Im pytest tests -m "long and not docker" --timeout=1200

test-docker: $(STAMP)  ## clusters, commands and growths again, on containers of a Docker engine
	@$(BIN)/python -Im pytest $(CONTRACT) -m "docker or kafka" --kafka-supplier=docker

test-docker-all: $(STAMP)  ## every broker test again, on containers
	@$(BIN)/python -Im pytest tests -m "docker or kafka" --kafka-supplier=docker

chaos: $(STAMP)  ## 40 random changes between 1 and 64 partitions on three brokers, the controller killed at every step
	@KEYORDER_CHAIN=40 KEYORDER_BROKERS=3 $(BIN)/python -Im pytest tests/integration/test_shrink.py -k random_chain -s

writers: $(STAMP)  ## a change beneath 1 000 live writers, a tenth of which come and go while it is prepared
	@KEYORDER_WRITERS=1000 $(BIN)/python -Im pytest tests/integration/test_many_writers.py -q

spark-chaos: $(STAMP)  ## 20 random kills of Spark drivers and workers in mid batch, then brokers of three; SEED=n
	@KEYORDER_SPARK_CHAOS=20 $(if $(SEED),KEYORDER_SEED=$(SEED)) $(BIN)/python -Im pytest tests/streaming/sink/test_chaos.py -s

spark-stress: $(STAMP)  ## a query over topics that come, go, grow and shrink at random, 100 steps; SEED=n
	@KEYORDER_SPARK_STRESS=100 $(if $(SEED),KEYORDER_SEED=$(SEED)) $(BIN)/python -Im pytest tests/streaming/test_stress.py -s --timeout=3000

bench: $(STAMP)  ## speed against other ways, in turns on one broker: ONLY=P9,P13 for some, QUICK=1 for a short form
	@$(BIN)/keyorder bench $(if $(ONLY),--only $(ONLY)) $(if $(QUICK),--quick)

matrix: $(STAMP)  ## every group protocol x join, leave, crash, zombie x growth and shrink, some minutes
	@KEYORDER_MATRIX=full $(BIN)/python -Im pytest tests/integration/test_group_matrix.py -n 2 --timeout=600

compaction-histories: $(STAMP)  ## 100 random histories of compaction by version, a real log cleaner running
	@KEYORDER_HISTORIES=100 $(BIN)/python -Im pytest tests/compaction/test_histories.py -s -n 0

connect-chaos: $(STAMP)  ## three Connect workers: ten kills, standstills, brokers of three, while the topic grows and shrinks; SEED=n
	@KEYORDER_CONNECT_KILLS=10 $(if $(SEED),KEYORDER_SEED=$(SEED)) $(BIN)/python -Im pytest tests/integration/test_connect_chaos.py -s

applications: $(STAMP)  ## hard applications on stock clients and on ours, judged: 50 seeds, SEEDS=n for another number, SEED=n for one
	@KEYORDER_APPLICATIONS=$(or $(SEEDS),50) $(if $(SEED),KEYORDER_SEED=$(SEED)) $(BIN)/python -Im pytest tests/integration/applications -s -n 0

connect-parity: $(STAMP)  ## Connect's data, converters and transforms beside Kafka Connect's own classes on a JVM, many random cases
	@KEYORDER_CONNECT_CASES=3000 $(BIN)/python -Im pytest tests/connector/connect/jvm -q -n 0 --timeout=1200

lint: $(STAMP)  ## format, lint, types
	@$(BIN)/ruff format --check --quiet . && $(BIN)/ruff check --quiet .
	@rm -rf $(TYPES) && mkdir -p $(TYPES)/keyorder && ln -s $(TYPED:%=../../../%) $(TYPES)/keyorder  # not the checkout as a whole: a link to what lies above it has no end
	@MYPYPATH=$(TYPES) $(BIN)/mypy $(PACKAGES)

check: lint  ## format, lint, types, pure tests, architecture; no broker, under a minute
	@$(BIN)/python -Im pytest tests -q -m "not kafka and not docker" --ignore=tests/model --ignore=tests/simulation -n auto $(DEALT)  # these: make test

model: $(STAMP)  ## the exhaustive models of the protocol within larger bounds, some minutes
	@KEYORDER_MODEL=large $(BIN)/python -Im pytest tests/model -q -rP --timeout=1800

format: $(STAMP)  ## rewrite the code in the house's format
	@$(BIN)/ruff check --fix --quiet . ; $(BIN)/ruff format --quiet .

simulate: $(STAMP)  ## 100 000 simulated histories of the state machines, an hour or so; SIMULATIONS=n for another number, SEED=n for one
	@KEYORDER_SIMULATIONS=$(or $(SIMULATIONS),100000) $(if $(SEED),KEYORDER_SEED=$(SEED)) $(BIN)/python -Im pytest tests/simulation -q -rP -k histor

conformance-removal: $(STAMP)  ## take each behaviour of the conformance page out of a copy and see its tests fail: IDS="K253-41 gate", AGAIN=1, REMOVALS=2
	@$(BIN)/python tests/support/conformance_removal.py $(IDS) $(if $(AGAIN),--again) --jobs $(or $(REMOVALS),1)

docs: $(STAMP)  ## tables and pages that are made from the code and its tests, and the whole as a site in build/site
	@$(BIN)/python tests/support/conformance.py --write
	@$(BIN)/python tests/support/connect_docs.py --write
	@PYTHONPATH=tests $(BIN)/python tests/support/connect_cases.py --write
	@NO_MKDOCS_2_WARNING=1 $(BIN)/python -Im mkdocs build --quiet && echo "==> build/site/index.html"

clean:  ## forget everything that was built
	rm -rf $(VENV) build dist *.egg-info .mypy_cache .ruff_cache .pytest_cache .hypothesis
