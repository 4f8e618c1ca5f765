# The whole workflow. Each target does its own set-up and can be run again.
PYTHON ?= python3
VENV   := .venv
BIN    := $(VENV)/bin
STAMP  := $(VENV)/.installed-all
DEMO_STAMP := $(VENV)/.installed-demo
TYPES  := build/types
OLDEST := build/oldest
SHIPPED := build/shipped
AUDIT  := build/audit
EXTRAS ?= arrow,compact,connect,demo,jre,local,metrics,postgresql,spark
OLDEST_CLIENT := $(shell sed -n 's/^ *"confluent-kafka>=\([0-9.]*\)".*/\1/p' pyproject.toml)
UPSTREAM_ENV := build/upstream$(if $(CLIENT),-$(CLIENT))
UPSTREAM_NEEDS := pytest-asyncio requests-mock avro six
TYPED  := __init__.py __main__.py _version.py aio.py errors.py metrics.py results.py py.typed partitioner connector streaming compaction benchmarks
# Where it is set, the processes beside each other would compile every test file anew, each of them in each run.
unexport PYTHONDONTWRITEBYTECODE
# Broker tests mostly wait, so several processes share a core; JOBS=0 runs them one by one.
JOBS   ?= 4
DEALT  := --dist loadfile --no-loadscope-reorder
PARALLEL := $(if $(filter 0,$(JOBS)),,-n $(JOBS) $(DEALT))
SUITE  := $(BIN)/python -Im pytest tests --second-look --durations=40 --durations-min=5 $(PARALLEL)
# What can differ between a broker in a container and one that is a process; test-docker-all runs all.
CONTRACT := tests/connector/local tests/connector/cli/test_topics.py tests/integration/test_image.py \
            tests/integration/test_growth.py::test_grows_under_load_with_a_member_joining_and_one_killed
KAFKAS ?= 3.9.2 4.3.1
EVERYWHERE := tests/integration/test_growth.py tests/integration/test_groups.py tests/integration/test_transactions.py \
              tests/connector/cli/test_topics.py
PACKAGES := -p keyorder.partitioner -p keyorder.connector -p keyorder.streaming -p keyorder.compaction -p keyorder.benchmarks

.PHONY: help setup demo test test-nightly compatibility rolling-upgrade simulate simulate-machines writers test-long test-docker test-docker-all chaos spark-chaos spark-stress compaction-histories conformance-removal matrix connect-chaos jepsen soak audit sbom connect-parity parity parity-oldest parity-upstream lint check format docs screenshots image compose-up compose-down bench pure-connector pure-partitioner pure-others clean

help:  ## the targets
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | awk -F':.*## ' '{printf "  make %-12s %s\n", $$1, $$2}'

# lenient: a file that was added is there without another install. PySpark looks for sources among files alone.
SHOW_TO_SPARK = ln -sfn '$(CURDIR)/pyspark_keyorder' \
                "$$($(BIN)/python -Ic 'import sysconfig; print(sysconfig.get_path("purelib"))')/pyspark_keyorder"

$(STAMP): pyproject.toml _version.py
	@echo "==> installing keyorder and its tools into $(VENV)"
	@$(PYTHON) -m venv $(VENV)
	@$(BIN)/pip install --quiet --upgrade pip
	@$(BIN)/pip install --quiet --progress-bar on --editable '.[dev]' --config-settings editable_mode=lenient
	@$(SHOW_TO_SPARK)
	@touch $@ $(DEMO_STAMP)

$(DEMO_STAMP): pyproject.toml _version.py
	@echo "==> installing keyorder with what the demonstration needs into $(VENV)"
	@$(PYTHON) -m venv $(VENV)
	@$(BIN)/pip install --quiet --upgrade pip
	@$(BIN)/pip install --quiet --progress-bar on --editable '.[demo,jre]' --config-settings editable_mode=lenient
	@$(SHOW_TO_SPARK)
	@touch $@

setup: $(STAMP)  ## the virtual environment

demo: $(DEMO_STAMP)  ## grow a topic under load on an embedded real Kafka: the stock client breaks order, keyorder does not
	@$(BIN)/keyorder demo

test: $(STAMP)  ## the tests of every part, on real brokers started for the run
	@$(SUITE) -m "not long and not nightly and not docker"

test-long: $(STAMP)  ## the proofs that take their time: Spark, faults, hard applications, groups, both clients beside each other
	@$(SUITE) -m "long and not nightly and not docker"

test-nightly: $(STAMP)  ## the tests that take minutes each, both sides of comparisons, all sets of parameters
	@$(BIN)/python -Im pytest tests -m "nightly and not docker" --timeout=1200

compatibility: $(STAMP)  ## growth, groups, transactions and topic commands on the other versions of Kafka; KAFKAS="3.9.2" for one
	@for kafka in $(KAFKAS); do echo "==> Kafka $$kafka"; \
		$(BIN)/python -Im pytest $(EVERYWHERE) -m "not docker and not nightly" --kafka-version=$$kafka || exit 1; done

rolling-upgrade: $(STAMP)  ## an earlier version and today's replace each other while a topic changes; WHEEL=path for another earlier version
	@KEYORDER_EARLIER_WHEEL="$(WHEEL)" $(BIN)/python -Im pytest tests/integration/test_rolling_upgrade.py --timeout=1200

test-docker: $(STAMP)  ## clusters, commands and a growth again, on containers of a Docker engine
	@$(BIN)/python -Im pytest $(CONTRACT) -m "docker or kafka" --kafka-supplier=docker --second-look

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

jepsen: $(STAMP)  ## faults in every phase of changes on three brokers, judged: MINUTES= SEED= FAULTS=a,b KINDS= SWEEP=1 PLAN=fault@phase,.. KEEP=1
	@PYTHONPATH=tests $(BIN)/python tests/faults/campaign.py --minutes $(or $(MINUTES),10) $(if $(SEED),--seed $(SEED)) \
	    $(if $(FAULTS),--faults $(FAULTS)) $(if $(KINDS),--kinds $(KINDS)) $(if $(SWEEP),--sweep) \
	    $(if $(PLAN),--plan $(PLAN)) $(if $(KEEP),--keep)

parity: $(STAMP)  ## our clients beside confluent-kafka's, and beneath libraries that others wrote
	@$(BIN)/python -Im pytest tests/parity -q -n 0 --timeout=1200

$(OLDEST)/.installed: $(STAMP)
	@echo "==> confluent-kafka $(OLDEST_CLIENT) into $(OLDEST), in front of $(VENV)"
	@$(BIN)/python -m venv --clear $(OLDEST)
	@$(OLDEST)/bin/python -m pip install --quiet --no-deps 'confluent-kafka==$(OLDEST_CLIENT)'
	@$(OLDEST)/bin/python tests/support/behind.py $(VENV)
	@touch $@

parity-oldest: $(OLDEST)/.installed  ## the same with the oldest confluent-kafka that pyproject.toml allows
	@$(OLDEST)/bin/python -Im pytest tests/parity -q -n 0 --timeout=1200

$(UPSTREAM_ENV)/.installed: $(STAMP)
	@echo "==> what confluent-kafka's own tests import into $(UPSTREAM_ENV), in front of $(VENV)"
	@$(BIN)/python -m venv --clear $(UPSTREAM_ENV)
	@$(UPSTREAM_ENV)/bin/python tests/support/behind.py $(VENV)
	@$(UPSTREAM_ENV)/bin/python -m pip install --quiet $(if $(CLIENT),'confluent-kafka==$(CLIENT)') $(UPSTREAM_NEEDS)
	@touch $@

parity-upstream: $(UPSTREAM_ENV)/.installed  ## confluent-kafka's own tests and examples, from a checkout: UPSTREAM=path, CLIENT=2.16.0, ONLY=Producer, WRITE=1
	@test -n "$(UPSTREAM)" || { echo "UPSTREAM=path: a checkout of confluent-kafka-python"; exit 2; }
	@PYTHONPATH=tests $(UPSTREAM_ENV)/bin/python tests/parity/upstream/examples.py $(UPSTREAM) -k '$(ONLY)' $(if $(WRITE),--write)
	@$(UPSTREAM_ENV)/bin/python tests/parity/upstream/run.py $(UPSTREAM) -k '$(ONLY)' $(if $(WRITE),--write)
	@$(UPSTREAM_ENV)/bin/python tests/parity/upstream/run.py $(UPSTREAM) -k '$(ONLY)' $(if $(WRITE),--write) --protocol consumer

connect-parity: $(STAMP)  ## Connect's data, converters, transforms and REST beside Kafka Connect's own on a JVM
	@KEYORDER_CONNECT_CASES=3000 $(BIN)/python -Im pytest tests/connector/connect/jvm -q -n 0 --timeout=1200

soak: $(STAMP)  ## a steady load with changes and kills: does memory, do descriptors, threads grow? MINUTES= SEED= KEEP=1
	@PYTHONPATH=tests $(BIN)/python tests/faults/soak.py --minutes $(or $(MINUTES),45) $(if $(SEED),--seed $(SEED)) $(if $(KEEP),--keep)

# What a user installs, without the tools of a checkout, is what is audited; the auditing tools are beside it.
$(SHIPPED)/.installed-$(EXTRAS): pyproject.toml _version.py
	@rm -rf $(SHIPPED) && $(PYTHON) -m venv $(SHIPPED)
	@$(SHIPPED)/bin/pip install --quiet --upgrade pip
	@$(SHIPPED)/bin/pip install --quiet --progress-bar on '.[$(EXTRAS)]'
	@touch '$@'

$(AUDIT)/.installed: Makefile
	@$(PYTHON) -m venv $(AUDIT)
	@$(AUDIT)/bin/pip install --quiet --upgrade pip
	@$(AUDIT)/bin/pip install --quiet --progress-bar on 'pip-audit>=2.10,<3' 'cyclonedx-bom>=7.5,<8'
	@touch $@

audit: $(SHIPPED)/.installed-$(EXTRAS) $(AUDIT)/.installed  ## known vulnerabilities of what keyorder installs with its extras; EXTRAS=a,b for some
	@$(SHIPPED)/bin/pip freeze --exclude keyorder --exclude pip --exclude setuptools > build/shipped.txt
	@$(AUDIT)/bin/pip-audit --requirement build/shipped.txt --no-deps --disable-pip --strict --progress-spinner off

sbom: $(SHIPPED)/.installed-$(EXTRAS) $(AUDIT)/.installed  ## build/sbom.json: what keyorder installs with its extras, as CycloneDX; EXTRAS=a,b for some
	@$(AUDIT)/bin/cyclonedx-py environment $(SHIPPED)/bin/python --pyproject pyproject.toml --output-format JSON --output-file build/sbom.json
	@echo "build/sbom.json: $$(grep -c bom-ref build/sbom.json) entries"

lint: $(STAMP)  ## format, lint, types
	@$(BIN)/ruff format --check --quiet . && $(BIN)/ruff check --quiet .
	@rm -rf $(TYPES) && mkdir -p $(TYPES)/keyorder && ln -s $(TYPED:%=../../../%) $(TYPES)/keyorder  # not the checkout as a whole: a link to what lies above it has no end
	@MYPYPATH=$(TYPES) $(BIN)/mypy $(PACKAGES)

check: $(STAMP)  ## format, lint, types, pure tests, architecture; no broker, under a minute
	@$(MAKE) --no-print-directory -j 4 lint pure-connector pure-partitioner pure-others

# The tests of make check, those of models and simulations left to make test and make test-long. Each part is a process that reads
# its own files alone: workers of one run would each read them all. Those of connector/ wait more than they compute.
PURE := pytest -q -m "not kafka and not docker and not slow and not nightly" --without-services

pure-connector: $(STAMP)
	@$(BIN)/python -Im $(PURE) tests/connector

pure-partitioner: $(STAMP)
	@$(BIN)/python -Im $(PURE) tests/partitioner

pure-others: $(STAMP)
	@$(BIN)/python -Im $(PURE) tests $(foreach part,connector partitioner model simulation,--ignore=tests/$(part))

model: $(STAMP)  ## the exhaustive models of the protocol within larger bounds, some minutes
	@KEYORDER_MODEL=large $(BIN)/python -Im pytest tests/model -q -rP --timeout=1800

format: $(STAMP)  ## rewrite the code in the house's format
	@$(BIN)/ruff check --fix --quiet . ; $(BIN)/ruff format --quiet .

simulate: $(STAMP)  ## simulated histories of the shipped clients on all cores, 1 000 or SIMULATIONS=n from FIRST=n on, SEED=n for one, KEEP=1; which states met which events
	@KEYORDER_SIMULATIONS=$(or $(SIMULATIONS),1000) KEYORDER_FIRST_SEED=$(or $(FIRST),0) $(if $(SEED),KEYORDER_SEED=$(SEED)) $(if $(KEEP),KEYORDER_KEEP=1) $(BIN)/python -Im pytest tests/simulation/shipped -q -s -k histor

simulate-machines: $(STAMP)  ## 100 000 simulated histories of the state machines, an hour or so; SIMULATIONS=n for another number, SEED=n for one
	@KEYORDER_SIMULATIONS=$(or $(SIMULATIONS),100000) $(if $(SEED),KEYORDER_SEED=$(SEED)) $(BIN)/python -Im pytest tests/simulation --ignore=tests/simulation/shipped -q -rP -k histor

conformance-removal: $(STAMP)  ## take each behaviour of the conformance page out of a copy and see its tests fail: IDS="K253-41 gate", AGAIN=1, REMOVALS=2
	@$(BIN)/python tests/support/conformance_removal.py $(IDS) $(if $(AGAIN),--again) --jobs $(or $(REMOVALS),1)

image:  ## an image of keyorder's commands, the controller by default; BASE= another image with Python
	@docker build --file docker/keyorder/Dockerfile --tag keyorder:latest $(if $(BASE),--build-arg BASE=$(BASE)) \
	    --build-arg VERSION=$$(sed -n 's/^__version__ = "\(.*\)"/\1/p' _version.py) \
	    --build-arg REVISION=$$(git rev-parse HEAD 2>/dev/null) .

compose-up:  ## three brokers, controller, Connect worker, Prometheus, Grafana and a load, by Docker Compose: docs/run.md
	@docker compose --file docker/compose-full.yaml up --build --detach --wait

compose-down:  ## end them, and forget their data
	@docker compose --file docker/compose-full.yaml down --volumes

docs: $(STAMP)  ## tables and pages that are made from the code and its tests, and the whole as a site in build/site
	@$(BIN)/python tests/support/conformance.py --write
	@$(BIN)/python tests/support/spark_suites.py --write
	@$(BIN)/python tests/support/client_parity.py --write
	@PYTHONPATH=tests $(BIN)/python tests/support/connect_docs.py --write
	@$(BIN)/python tests/support/sequence_diagrams.py --write
	@$(BIN)/python tests/support/api_errors.py --write
	@PYTHONPATH=tests $(BIN)/python tests/support/config_tables.py --write
	@PYTHONPATH=tests $(BIN)/python tests/support/bench_table.py --write
	@PYTHONPATH=tests $(BIN)/python tests/support/connect_cases.py --write
	@PYTHONPATH=tests $(BIN)/python tests/support/connect_rest_rules.py --write
	@NO_MKDOCS_2_WARNING=1 $(BIN)/python -Im mkdocs build --quiet \
	    && echo "==> build/site; to read it: $(PYTHON) -m http.server --directory build/site, then http://localhost:8000/"

screenshots: $(STAMP)  ## the pictures of the status page, the site, the report and the dashboard in docs/images, by a real Chromium
	@PYTHONPATH=tests $(BIN)/python -m support.screenshots $(ONLY)

clean:  ## forget everything that was built
	rm -rf $(VENV) build dist *.egg-info .mypy_cache .ruff_cache .pytest_cache .hypothesis
