# make run    the story, in a minute       make test      a sample of every kind of test, in minutes
# make tour   the long story               make test-all  everything; make bench: speed, as ratios
# make quick  the fastest tests            make dist      the packages, built and checked

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready
MATRIX := lowest oldest default spark41 spark42 newest
PARALLEL := --numprocesses=logical --maxprocesses=4

.PHONY: run tour test quick test-whole test-all test-deep test-faults test-damage test-fuzz explore test-matrix test-zookeeper zookeeper test-avro avro test-pinot pinot-clients test-console pictures chromium test-exports newer-fixtures test-delta chaos push-chaos interop interop-jars fixtures hudi-options option-pages docs dist lint bench bench-growth bench-peers lock preflight clean

run: preflight $(READY)
	@$(BIN)/python examples/story.py

# The long story, with all that the commands print; two minutes.
tour: preflight $(READY)
	@$(BIN)/python examples/tour.py

# A sample of everything, Spark and the crash matrix included: about eight minutes. tests/tiers.toml says what it takes.
# Spark takes all cores by itself, so its tests come after the others, which share them.
test: export HOLDFAST_TESTS = sample
test: preflight $(READY) lint
	$(BIN)/pytest -m "not spark" $(PARALLEL) --dist=worksteal
	$(BIN)/pytest -m spark

# No JVM and no more than a minute: the rules, the formats and the command line.
quick: export HOLDFAST_TESTS = quick
quick: $(READY)
	$(BIN)/pytest -m "not spark" $(PARALLEL) --dist=worksteal

# Every test that needs PyPI only, whole.
test-whole: preflight $(READY)
	$(BIN)/pytest -m "not spark" $(PARALLEL) --dist=loadfile
	$(BIN)/pytest -m spark

# More nested crash points and interleavings than `make test` samples; about ten minutes.
test-deep: preflight $(READY)
	HOLDFAST_NESTED_STRIDE=8 HOLDFAST_ASLEEP_STRIDE=2 HOLDFAST_RETURN_STRIDE=3 HOLDFAST_SCHEDULES=12 \
		$(BIN)/pytest tests/crashes/test_crash_matrix.py tests/interleavings -k "recovering or sleeps or overtake or random" \
		$(PARALLEL) --dist=worksteal
	HOLDFAST_COPY_STRIDE=1 $(BIN)/pytest tests/services/test_copies.py $(PARALLEL) --dist=worksteal

# Every change of every verb answered with every kind of error, where `make test` takes one kind for each.
test-faults: preflight $(READY)
	HOLDFAST_FAULT_STRIDE=1 $(BIN)/pytest tests/crashes/test_storage_faults.py $(PARALLEL) --dist=worksteal

# Every file of a table's metadata, damaged in every way, one at a time; about ten minutes.
test-damage: preflight $(READY)
	HOLDFAST_DAMAGE_STRIDE=1 HOLDFAST_DAMAGE_FLIPS=12 $(BIN)/pytest tests/behaviour/test_every_damage.py $(PARALLEL) --dist=worksteal

# Everything that is read from outside, changed at random from a seed: more than fifty thousand inputs; some minutes.
test-fuzz: preflight $(READY)
	HOLDFAST_FUZZ=1 $(BIN)/pytest tests/fuzz $(PARALLEL) --dist=loadfile

# Everything there is, but every schedule (`explore`), the long runs of chance (`chaos`, `push-chaos`) and the
# benchmarks: every PySpark of the matrix, ZooKeeper, Avro and Apache Hudi as peers, too.
test-all: lint test-whole test-deep test-faults test-damage test-fuzz test-matrix test-zookeeper test-avro test-pinot test-console test-exports test-delta interop hudi-options

# Every schedule with one switch, too; about half an hour.
explore: preflight $(READY)
	HOLDFAST_SWITCH_STRIDE=1 HOLDFAST_RETURN_STRIDE=2 HOLDFAST_ASLEEP_STRIDE=1 $(BIN)/pytest tests/interleavings $(PARALLEL) --dist=worksteal

# The Spark tests on the oldest and the newest PySpark, those of the format on each between, and on Spark Connect;
# the service and the core of the tables on the lowest version of everything that pyproject.toml admits.
test-matrix: preflight $(MATRIX:%=.venvs/%/.ready)
	@$(BIN)/python tests/matrix/run.py

.venvs/%/.ready: tests/matrix/%.lock pyproject.toml | $(READY)
	@echo "Installing the $* versions into .venvs/$* (once, about a minute) ..."
	@$(BIN)/uv venv --quiet --clear --python $(BIN)/python .venvs/$*
	@$(BIN)/uv pip install --quiet --python .venvs/$*/bin/python --require-hashes -r tests/matrix/$*.lock
	@$(BIN)/uv pip install --quiet --python .venvs/$*/bin/python --no-deps --no-build-isolation -e .
	@touch $@

# The lock in ZooKeeper against a real server, and against Curator, which Hudi uses.
ZOOKEEPER := /usr/share/zookeeper/bin/zkServer.sh
test-zookeeper: preflight $(READY) $(ZOOKEEPER)
	HOLDFAST_ZOOKEEPER=$(ZOOKEEPER) $(BIN)/pytest tests/zookeeper

zookeeper: $(ZOOKEEPER)

$(ZOOKEEPER):
	@test "$$(id -u)" = 0 && command -v apt-get > /dev/null || { echo "holdfast: ZooKeeper is needed; install Debian's package zookeeper, or run this as root on Debian" >&2; exit 1; }
	@echo "Installing Debian's ZooKeeper (once, a minute) ..."
	@apt-get update -qq && apt-get install -qq --no-install-recommends zookeeper > /dev/null

# The exports read by everybody whose packages do not fit beside the others: pyiceberg, and DuckDB's extensions.
test-exports: preflight .venvs/exports/.ready
	HOLDFAST_SERVICE=$(CURDIR)/$(BIN)/holdfast PYTHONPATH=tests .venvs/exports/bin/python -m pytest tests/exports

# Avro sources, with Spark's package for them, which Maven fetches.
test-avro: avro
	HOLDFAST_AVRO=$$(PYTHONPATH=. $(BIN)/python tests/avro/jar.py) $(BIN)/pytest tests/avro

avro: preflight $(READY)
	@PYTHONPATH=. $(BIN)/python tests/avro/jar.py

# Pinot's own Java clients, which Maven fetches, against a running service.
test-pinot: pinot-clients
	HOLDFAST_PINOT=$$(PYTHONPATH=. $(BIN)/python tests/pinot/jars.py) $(BIN)/pytest tests/pinot

pinot-clients: preflight $(READY)
	@PYTHONPATH=. $(BIN)/python tests/pinot/jars.py

# The same random statements on tables of Holdfast and of Delta Lake, whose jars Maven fetches; some minutes.
test-delta: preflight $(READY)
	HOLDFAST_DELTA=$$(PYTHONPATH=.:tests $(BIN)/python tests/delta/jars.py) $(BIN)/pytest tests/delta

# The console in a real Chromium, Debian's: every page and action, contrast and labels; pictures in build/console.
CHROMIUM := /usr/bin/chromium
test-console: preflight $(READY) $(CHROMIUM)
	HOLDFAST_CHROMIUM=$(CHROMIUM) $(BIN)/pytest tests/console

# The pictures of the console in docs/pictures, taken anew.
pictures: preflight $(READY) $(CHROMIUM)
	@PYTHONPATH=tests HOLDFAST_CHROMIUM=$(CHROMIUM) $(BIN)/python -m harness.console_pictures

chromium: $(CHROMIUM)

$(CHROMIUM):
	@test "$$(id -u)" = 0 && command -v apt-get > /dev/null || { echo "holdfast: Chromium is needed; install Debian's package chromium, or run this as root on Debian" >&2; exit 1; }
	@echo "Installing Debian's Chromium (once, a minute) ..."
	@apt-get update -qq && apt-get install -qq --no-install-recommends chromium fonts-dejavu-core > /dev/null

# Four writers, killed and stopped at random for two minutes. HOLDFAST_SEED and HOLDFAST_CHAOS_SECONDS choose.
chaos: preflight $(READY)
	@PYTHONPATH=tests $(BIN)/python -m chaos.chaos
	@HOLDFAST_CHAOS_SECONDS=$${HOLDFAST_CHAOS_SECONDS:-120} $(BIN)/pytest -q tests/chaos/test_streaming.py

# Queries and pushes for a minute, while processes of the service are restarted and killed; chosen likewise.
push-chaos: preflight $(READY)
	@PYTHONPATH=tests $(BIN)/python -m chaos.push_load

lint: $(READY)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

bench: preflight $(READY)
	$(BIN)/python -m bench

# Apache Hudi itself as the other engine, on the same tables. Needs Maven for its jars (300 MB, once), 1.5 GB
# of disk, 4 GB of memory and about twenty minutes; INTEROP=short takes the core of it, in about five.
interop: interop-jars
	@PYTHONPATH=src:tests $(BIN)/python -m interop.run $(INTEROP)

interop-jars: preflight .venvs/oldest/.ready
	@PYTHONPATH=src:tests $(BIN)/python -m interop.lines

# The tables in tests/fixtures, written anew by Apache Hudi. Needs Maven, as `interop` does.
fixtures: interop-jars
	@PYTHONPATH=src:tests .venvs/oldest/bin/python -m fixtures.make

# The same for versions 8 and 9, written by Hudi 1.0 and 1.2.
newer-fixtures: interop-jars
	@TZ=UTC PYTHONPATH=src:tests .venvs/oldest/bin/python -m fixtures.make_newer

# Whether every option of Hudi's bundles is known, by name and default. Needs Maven, as `interop` does.
hudi-options: interop-jars
	@PYTHONPATH=src:tests:. $(BIN)/python -m interop.hudi_options

# Writes the tables of the pages on options anew, from the option table.
option-pages: $(READY)
	@PYTHONPATH=tests $(BIN)/python -m harness.option_pages

# How the control plane grows with files and instants, up to a million files: 5 GB of disk and ten minutes.
bench-growth: preflight $(READY)
	$(BIN)/python -m bench.growth
	$(BIN)/python -m bench.many

# Beside Apache Hudi, Delta Lake and Apache Iceberg on Spark 3.5, which all have a release for. Needs Maven
# (140 MB, once), 35 GB of disk, 16 GB of memory and hours; PEERS="--quick --rounds 1" takes minutes.
bench-peers: preflight .venvs/peers/.ready
	PYSPARK_PYTHON=$(CURDIR)/.venvs/peers/bin/python .venvs/peers/bin/python -m bench.peers $(PEERS)

# The documentation as a site, in build/site; a link that leads nowhere fails.
docs: $(READY)
	@NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict

# The wheel and the source distribution, what an index would say of them, and the README's example run by
# nothing but the wheel and what it asks for.
dist: $(READY)
	rm -rf dist
	$(BIN)/python -m build --no-isolation
	$(BIN)/twine check --strict dist/*
	$(BIN)/uv venv --quiet --clear --python $(BIN)/python .venvs/wheel
	$(BIN)/uv pip install --quiet --python .venvs/wheel/bin/python --constraint requirements.lock dist/*.whl
	cd $$(mktemp -d) && $(CURDIR)/.venvs/wheel/bin/python $(CURDIR)/tests/docs/readme_example.py $(CURDIR)/README.md

# Writes all locks anew: exact versions with hashes, no index lines.
COMPILE := $(BIN)/uv pip compile --quiet --universal --python-version 3.11 --generate-hashes \
	--no-header --no-emit-index-url --extra spark pyproject.toml
GROUPS := --group pyproject.toml:bench --group pyproject.toml:docs --group pyproject.toml:dev
lock: $(READY)
	$(COMPILE) --extra server $(GROUPS) requirements.in -o requirements.lock
	$(foreach name,$(filter-out lowest,$(MATRIX)) peers exports,$(COMPILE) --upgrade-package pyspark tests/matrix/$(name).in -o tests/matrix/$(name).lock &&) true
	$(COMPILE) --extra server --extra zookeeper --resolution lowest-direct tests/matrix/lowest.in -o tests/matrix/lowest.lock

preflight:
	@$(PYTHON) -c 'import sys; sys.version_info >= (3, 11) or sys.exit("holdfast: Python 3.11 or newer is needed, found %d.%d; say which with make PYTHON=..." % sys.version_info[:2])'
	@PYTHONPATH=src $(PYTHON) -m holdfast.engines.spark.java

$(READY): requirements.lock pyproject.toml
	@echo "Installing what is needed into $(VENV) (once, a few minutes) ..."
	@$(PYTHON) -m venv $(VENV)
	@$(BIN)/pip install --quiet --disable-pip-version-check --require-hashes -r requirements.lock
	@$(BIN)/pip install --quiet --disable-pip-version-check --no-deps --no-build-isolation -e .
	@touch $(READY)

clean:
	rm -rf $(VENV) .venvs build .mypy_cache .ruff_cache .pytest_cache .hypothesis spark-warehouse
