# One command per task; each sets up what it needs (.ci/setup.py does only what changed since the last time).
# Variables: PYTHON=python3.13 chooses the interpreter of a new .venv; ARGS="..." goes to the program behind a target;
# JOBS=4 is how many test files run at once (JOBS=0: in one process, for a debugger).

.DEFAULT_GOAL := help
MAKEFLAGS += --no-print-directory
SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c

VENV := $(CURDIR)/.venv
BIN := $(VENV)/bin
# pip would build for another place than the tests look at when a user's own settings leak in.
unexport PYTHONPATH PYTHONHOME
# What calls Spark names its Python by `prepare_environment`; one that is set here would start each process slowly.
unexport PYSPARK_PYTHON PYSPARK_DRIVER_PYTHON
# Images of Python set it: each process would compile the package again, and pytest rewrite every test.
unexport PYTHONDONTWRITEBYTECODE

JUNIT := build/junit
PYTEST := $(BIN)/pytest
TWINS := tests/unit/test_partitioners.py tests/unit/test_plugins.py tests/unit/producer/test_bulk_partitions.py tests/unit/buffers \
	tests/unit/client/test_driver.py tests/unit/core/test_sender.py tests/unit/net/test_interrupted_requests.py tests/simulation/test_mutant_targets.py \
	tests/simulation/test_hung_brokers.py tests/simulation/test_scenario_mutants.py \
	tests/unit/consumer/test_interrupted_polls.py \
	tests/threads/test_interrupts.py::test_ctrl_c_in_any_function_of_a_poll_loses_no_record \
	tests/threads/test_interrupts.py::test_a_listener_that_ctrl_c_ended_at_any_byte_code_is_none_for_the_next_call \
	tests/unit/processing/test_several_polls.py::test_buffered_records_whose_hand_over_ctrl_c_broke_off_come_again \
	tests/test_layout.py::test_each_compiled_module_runs_as_what_was_asked_for
JOBS := 2
SPARK := 4.2.0
# Files run in the order of tests/levels.py, not in that of their numbers of tests.
AT_ONCE = -n $(JOBS) --dist loadfile --no-loadscope-reorder

.PHONY: help setup jars demo test test-all test-pure test-containers test-spark test-kerberos nightly proof threads-long flaky soak durability fuzz fuzz-asan test-interpreters wheels check bench trace build docs lock clean

help: ## these targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-16s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

setup: ## .venv with the project (editable, compiled) and everything the other targets use
	@base=$$(if [ -z "$${PYTHON:-}" ] && [ -x $(BIN)/python ] && $(BIN)/python -c '' 2>/dev/null; \
		then echo $(BIN)/python; else .ci/python; fi); $$base .ci/setup.py

jars: setup ## Kafka's jars and the broker's start-up archive, cached outside the checkout
	@$(BIN)/python -m pyclient.testing prepare

demo: setup jars ## flights of New York 2013 through real Kafka and PySpark; result in build/demo.json
	@$(BIN)/python -m examples.flights $(ARGS)

test: setup jars ## the main tests: units, the fake cluster, a real broker's main paths, README, Spark's demo
	@mkdir -p $(JUNIT)
	@PYCLIENT_DIST=$${PYCLIENT_DIST:-checkout} $(PYTEST) $(AT_ONCE) -m "not extended and not proof" --junitxml=$(JUNIT)/test.xml $(ARGS)

test-all: setup jars ## every test but those of `make proof`; container tests too when a Docker engine answers
	@mkdir -p $(JUNIT)
	@$(PYTEST) $(AT_ONCE) --junitxml=$(JUNIT)/test.xml $(ARGS)

test-pure: setup ## tests of the compiled modules that have a twin in plain Python, with the twins
	@mkdir -p $(JUNIT)
	@PYCLIENT_PURE=1 $(PYTEST) $(AT_ONCE) --junitxml=$(JUNIT)/test-pure.xml $(TWINS) $(ARGS)

nightly: ## everything: test-all, trace, proof, every test of brokers on brokers in containers, newer interpreters
	@$(MAKE) -k test-all proof
	@$(MAKE) trace
	@$(MAKE) test-containers TESTS="tests/broker tests/containers"
	@$(MAKE) test-interpreters ARGS=--smoke

proof: setup jars ## what takes hours: mutants, 2,000 + 1,000 + 2,000 seeds of the simulation, every byte of logins and error of requests, 500 of threads, Spark's cluster under faults
	@mkdir -p $(JUNIT)
	@$(PYTEST) -m proof -s --junitxml=$(JUNIT)/proof.xml tests/simulation tests/broker/test_admin_beside_java.py tests/broker/test_benchmarks.py tests/spark tests/unit/integration $(ARGS)
	@PYCLIENT_SIMULATION_SEEDS=2000 PYCLIENT_SIMULATION_GROUP_SEEDS=1000 PYCLIENT_EXACTLY_ONCE_SEEDS=2000 \
		PYCLIENT_SIMULATION_ADMIN_SEEDS=1000 $(PYTEST) -o timeout=7200 tests/simulation/test_seeds.py tests/simulation/test_exactly_once_seeds.py tests/simulation/test_admin_seeds.py
	@PYCLIENT_EVERY_BYTE=1 $(PYTEST) -o timeout=3600 $(AT_ONCE) tests/simulation/test_broken_logins.py tests/unit/testing/simulation/test_tls_world.py
	@PYCLIENT_EVERY_ERROR=1 $(PYTEST) -o timeout=3600 $(AT_ONCE) tests/simulation/test_errors_in_peace.py
	@$(MAKE) threads-long

threads-long: setup ## tests/threads with five hundred seeds; SEEDS=7 runs one again, SEEDS=500:2000 others
	@PYCLIENT_THREADS_SEEDS=$${SEEDS:-0:500} $(PYTEST) tests/threads $(ARGS)

flaky: setup jars ## run TESTS="file::test ..." TIMES=200 times, JOBS=6 at once, EACH=1 in a process; failed runs in build/flaky
	@$(BIN)/python .ci/flaky.py --times $${TIMES:-200} --each $${EACH:-1} --jobs $(if $(filter command line environment,$(origin JOBS)),$(JOBS),6) $(ARGS) $(TESTS)

soak: setup ## simulate new seeds until Ctrl-C, past those that break; SEEDS=7 begins there
	@$(BIN)/python -m pyclient.testing.simulation --soak $(SEEDS) $(ARGS)

durability: setup jars ## three brokers and workers killed, frozen and restarted under load; FOR=60 RATE=22000 INPUTS=100000 FAULTS=9 SEED=7
	@PYCLIENT_DURABILITY_SECONDS=$${FOR:-60} PYCLIENT_DURABILITY_RATE=$${RATE:-22000} PYCLIENT_DURABILITY_FAULTS=$${FAULTS:-9} \
		PYCLIENT_DURABILITY_INPUTS=$${INPUTS:-100000} PYCLIENT_DURABILITY_SEED=$${SEED:-1} \
		$(PYTEST) -s -m "proof or not proof" $(addprefix tests/broker/durability/,test_three_brokers.py test_groups_of_readers.py test_exactly_once.py) $(ARGS)

fuzz: setup ## damaged batches, messages, buffers and Arrow data, all at once for FOR=60 seconds, with a checking allocator; SEED=7
	@mkdir -p $(JUNIT)
	@PYTHONMALLOC=debug PYCLIENT_FUZZ_SECONDS=$${FOR:-60} $${SEED:+env PYCLIENT_FUZZ_SEED=$$SEED} $(PYTEST) -n 6 --dist loadfile -rP \
		-o timeout=$$(($${FOR:-60} + 600)) --junitxml=$(JUNIT)/fuzz.xml tests/fuzz $(ARGS)

fuzz-asan: setup ## the same for FOR=60 seconds each on modules that AddressSanitizer checks, compiled in build/asan; SEED=7
	@$(BIN)/python .ci/fuzz_asan.py $${FOR:-60} $${SEED:-}

test-containers: setup jars ## brokers in containers, nothing skipped; TESTS=tests/broker runs every test of brokers there
	@mkdir -p $(JUNIT)
	@$(BIN)/python .ci/test_containers.py $(AT_ONCE) --junitxml=$(JUNIT)/test-containers.xml $(TESTS) $(ARGS)

test-spark: setup jars ## Spark's tests with SPARK=4.2.0, the oldest that is supported, which is put into build/pyspark-4.2.0
	@test -d build/pyspark-$(SPARK) || $(BIN)/python -m pip install --quiet --no-deps --target build/pyspark-$(SPARK) pyspark==$(SPARK)
	@PYTHONPATH=$(CURDIR)/build/pyspark-$(SPARK) $(PYTEST) $(AT_ONCE) $(ARGS) tests/spark

test-kerberos: setup jars ## tests/kerberos with a KDC and a broker of its own; installs MIT's KDC when run as root
	@bash .ci/kerberos.sh
	@mkdir -p $(JUNIT)
	@PYCLIENT_KERBEROS=1 $(PYTEST) --junitxml=$(JUNIT)/test-kerberos.xml tests/kerberos $(ARGS)

test-interpreters: setup ## the wheel built and tested with Debian's Python 3.11, 3.13, 3.14, 3.15, and 3.14t compiled; root on Debian; ARGS="3.13 --smoke"
	@$(BIN)/python .ci/interpreters.py $(ARGS)

wheels: setup ## wheels for Linux as a release holds them, each proved in an empty environment; dist/wheels; ARGS="3.14"
	@$(BIN)/python .ci/wheels.py $(ARGS)

check: setup ## ruff, strict mypy, import contracts
	@$(MAKE) -k check-ruff check-mypy check-imports

.PHONY: check-ruff check-mypy check-imports
check-ruff:
	@echo "== ruff" && $(BIN)/ruff check

check-mypy:
	@echo "== mypy" && $(BIN)/mypy && $(BIN)/mypy --strict .ci/*.py

check-imports:
	@echo "== import-linter" && $(BIN)/lint-imports --no-logo --no-cache

bench: setup jars ## figures beside the other clients
	@$(BIN)/python -m benchmarks $(ARGS)

trace: setup ## each protocol rule, its tests, and their results in the last `make test-all`
	@$(BIN)/python .ci/trace.py $(ARGS)

build: setup ## wheel and sdist into dist/
	@rm -rf dist && DIST_EXTRA_CONFIG=$(CURDIR)/build/parallel.cfg $(BIN)/python -m build --no-isolation --outdir dist .

docs: setup ## regenerate the generated pages and typed signatures
	@$(BIN)/python -m tools.pages

lock: setup ## move requirements/constraints.txt to the newest versions that pyproject.toml allows
	@$(BIN)/python .ci/setup.py --lock

clean: ## remove .venv and everything that was built
	@rm -rf .venv build dist .mypy_cache .ruff_cache .pytest_cache .hypothesis *.egg-info
	@find pyclient/ partitioners assignors serializers integration -name '*.so' -o -name '*.c' -type f | xargs -r rm -f
	@find . -name __pycache__ -type d -prune -exec rm -rf {} +
