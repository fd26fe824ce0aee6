# Every command of the project. `make` alone lists them.
SHELL := /bin/sh
.DEFAULT_GOAL := help

# Where the demo's shop listens, and whether it stays (SERVE=0 ends with the verdict's exit code).
PORT ?= 8000
SERVE ?= 1
# What `make flood` does: whose shop (empty: the demo here), how buyers arrive, buyers a second, for how long, who comes.
HOST ?=
# Some tools put a HOST of their own into the environment; an address begins with http.
SHOP := $(if $(filter environment,$(origin HOST)),$(filter http%,$(HOST)),$(HOST))
SALES ?=
SHAPE ?= doors_open
RATE ?= 0
SECONDS ?= 0
MIX ?= auto
# Locust's users and processes that play the buyers.
USERS ?= 0
PROCESSES ?= 1
# How many simulated people come to each sale that opens while the demo serves its shop.
CROWD ?= 40
# How often `make mutants` floods the shop as it is.
GREEN ?= 20
# Where `make audit-dependencies` asks; empty: OSV.
ADVISORIES ?=
# Which tests `make test` runs, for example: make test TESTS=tests/races
TESTS ?= tests
# How many of them at once: each of these processes has servers of its own, and most tests wait for something.
JOBS ?= 2
# Their order, drawn from this number, so that a failure comes back when they run again; SEED=last repeats the last one.
SEED ?= 1

# Which Python makes .venv; empty: the first of python3, python3.11, python3.12 ... that is new enough.
PYTHON ?=

VENV := .venv
RUN := $(VENV)/bin/python
INSTALL := $(RUN) -m pip install --quiet --disable-pip-version-check --no-input --require-hashes
COMPILE := $(VENV)/bin/uv pip compile --quiet --universal --python-version 3.11 --generate-hashes \
	--no-emit-index-url --no-emit-find-links --no-header
# `make demo` and `make test` belong to this checkout, whatever a .env for production says. And they start hundreds of
# processes: where the environment forbids Python to keep what it compiled, each would compile the whole shop again.
LOCAL := FAIRDROP_ENV=development PYTHONDONTWRITEBYTECODE=

.PHONY: help
help: ## list these commands
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-12s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

.PHONY: demo
demo: $(VENV)/load.stamp ## start everything here, flood three sales, print the verdict, serve the shop (SERVE=0, PORT=, CROWD=)
	@exec env $(LOCAL) PORT=$(PORT) $(RUN) manage.py demo --crowd $(CROWD) $(if $(filter 0 no false,$(SERVE)),--no-serve)

.PHONY: flood
flood: $(VENV)/load.stamp ## flood a running shop and judge it (SHAPE= RATE= USERS= MIX= SECONDS= PROCESSES= HOST= SALES=)
	@exec env $(LOCAL) $(RUN) -m loadtest.run_flood --artefacts out/flood --shape $(SHAPE) --mix "$(MIX)" \
	  --rate $(RATE) --seconds $(SECONDS) --users $(USERS) --processes $(PROCESSES) \
	  --sales "$(SALES)" $(if $(SHOP),--host "$(SHOP)",--demo --host http://127.0.0.1:$(PORT))

.PHONY: test
test: $(VENV)/dev.stamp ## run every test, on servers of their own (TESTS=tests/races for some of them, SEED=2 in another order)
	@exec env $(LOCAL) $(BOUND) $(RUN) -m pytest --numprocesses $(JOBS) --dist loadfile --no-loadscope-reorder \
	  --randomly-seed=$(SEED) $(TESTS)

.PHONY: test-unit
test-unit: $(VENV)/dev.stamp ## run the tests that need no server, in seconds
	@exec env $(LOCAL) $(RUN) -m pytest tests/unit tests/rules

.PHONY: test-one-core
test-one-core: BOUND := taskset --cpu-list 0
test-one-core: test ## run every test bound to one core, as on a busy machine (TESTS=, SEED=, JOBS=1 for one at a time)

.PHONY: test-slow-senders
test-slow-senders: $(VENV)/dev.stamp ## prove that 20,000 silent and slow senders are ended within 15 s while a buyer is served
	@exec env $(LOCAL) SLOW_SENDERS=20000 SLOW_SENDERS_SECONDS=15 $(RUN) -m pytest --capture=no \
	  tests/crashes/test_slow_senders.py

.PHONY: test-crowds
test-crowds: $(VENV)/dev.stamp ## prove that 100 logins or 3,000 readers leave payments at p99 1 s at most, and /readyz at 3 s
	@exec env $(LOCAL) CROWDED_PAYMENTS=100 CROWDED_LENIENCE=1 $(RUN) -m pytest --capture=no \
	  tests/crashes/test_separate_pools.py -k crowd

.PHONY: test-returning
test-returning: $(VENV)/dev.stamp ## prove that units that come back are sold to the next in line, with holds of a minute
	@exec env $(LOCAL) RETURNING_UNITS_HOLD_SECONDS=60 $(RUN) -m pytest tests/journeys/test_returning_units.py

.PHONY: check
check: $(VENV)/dev.stamp ## lint, formatting, types, and the house rules (imports run down, migrations are complete, ...)
	$(RUN) -m ruff check .
	$(RUN) -m ruff format --check .
	$(LOCAL) $(RUN) -m mypy inventory shop workers loadtest
	$(LOCAL) $(RUN) -m pytest --quiet tests/rules

.PHONY: bench-gate
bench-gate: $(VENV)/dev.stamp ## measure admission, settlement and the whole road; fails below a floor
	@exec env $(LOCAL) $(RUN) -m loadtest.bench gate

.PHONY: profile-gate
profile-gate: $(VENV)/dev.stamp ## print where the time for one ask goes, and what headers, ids, metrics and bounded pools cost; fails below a floor
	@exec env $(LOCAL) $(RUN) -m loadtest.bench.gate.profile

.PHONY: bench-locks
bench-locks: $(VENV)/bench.stamp ## measure the lock and the queue alongside other libraries; fails below a floor
	@exec env $(LOCAL) $(RUN) -m loadtest.bench locks_queue

.PHONY: bench-settle
bench-settle: $(VENV)/dev.stamp ## measure settlement, expiry, payment and the audit; fails below a floor
	@exec env $(LOCAL) $(RUN) -m loadtest.bench settle

.PHONY: bench-streams
bench-streams: $(VENV)/dev.stamp ## measure purchases alongside 2,000 live streams and 10,000 mails, and the sale page; fails below a floor
	@exec env $(LOCAL) $(RUN) -m loadtest.bench streams

.PHONY: bench-age
bench-age: $(VENV)/dev.stamp ## measure a shop with no past alongside one with 10,000 past sales; fails below a floor
	@exec env $(LOCAL) $(RUN) -m loadtest.bench age

.PHONY: bench-log
bench-log: $(VENV)/dev.stamp ## measure a public log of 1,000,000 leaves, what logs cost the whole road, and their lag; fails below a floor
	@exec env $(LOCAL) $(RUN) -m loadtest.bench log

.PHONY: bench-desk
bench-desk: $(VENV)/dev.stamp ## measure the lists of staff with 100,000 orders, all of them as CSV, buyers forgotten; fails below a floor
	@exec env $(LOCAL) $(RUN) -m loadtest.bench desk

.PHONY: bench-capacity
bench-capacity: $(VENV)/dev.stamp ## compare what manage.py capacity predicts with runs of 1 and 2 processes, 1 and 3 masters
	@exec env $(LOCAL) $(RUN) -m loadtest.bench capacity

.PHONY: bench-shards
bench-shards: $(VENV)/dev.stamp ## measure what healthy shards of a Cluster keep while another one is frozen; fails below a floor
	@exec env $(LOCAL) $(RUN) -m loadtest.bench shards

.PHONY: bots
bots: $(VENV)/dev.stamp ## let robbers and 1,000 people press for 200 units, without defences and with each; fails above a bound
	@exec env $(LOCAL) $(RUN) -m loadtest.bench bots

.PHONY: bench-shop
bench-shop: $(VENV)/dev.stamp ## measure the whole shop: sustained, spike, sold out, overload, cost; fails below a floor
	@exec env $(LOCAL) $(RUN) -m loadtest.bench shop

.PHONY: bench
bench: $(VENV)/bench.stamp ## run every benchmark and write docs/benchmarks/README.md; fails when a floor is missed
	@exec env $(LOCAL) $(RUN) -m loadtest.bench

.PHONY: mutants
mutants: $(VENV)/dev.stamp ## switch each guard off in a flood of its own: the verdict must see it; then the shop as it is (GREEN=20)
	@exec env $(LOCAL) $(RUN) -m loadtest.mutants --green $(GREEN) --out docs/benchmarks

.PHONY: compare
compare: $(VENV)/bench.stamp ## sell the same goods in ten ways, nine of them rivals'; fails below a floor
	@exec env $(LOCAL) $(RUN) -m loadtest.bench compare

.PHONY: tamper
tamper: $(VENV)/load.stamp ## tamper with copies of a recorded sale's public log: which rule of the verifier names each
	@exec env $(LOCAL) $(RUN) -m loadtest.verify

.PHONY: audit
audit: $(VENV)/load.stamp ## check every invariant of each sale of the running demo (or of DATABASE_URL) that is not retired
	@exec $(RUN) manage.py audit

.PHONY: pins
pins: $(VENV)/dev.stamp ## compile requirements/*.in into hash-pinned requirements/*.txt
	cd requirements && for name in base image load dev bench; do ../$(COMPILE) $$name.in --output-file $$name.txt || exit 1; done

.PHONY: digests
digests: ## after a tag was changed, write the digest of each image into Dockerfile and docker-compose.yml (needs Docker and its registry)
	@docker/digests.sh

.PHONY: audit-dependencies
audit-dependencies: $(VENV)/dev.stamp ## ask a source of advisories about every pin; fails, also when none answers (ADVISORIES=)
	@exec env PYTHON=$(RUN) $(if $(ADVISORIES),ADVISORIES="$(ADVISORIES)") requirements/audit.sh

.PHONY: wheel
wheel: $(VENV)/dev.stamp ## build the wheel, with its bill of materials in CycloneDX, into out/wheel
	rm -rf out/wheel
	$(RUN) -m pip wheel . --quiet --no-deps --no-build-isolation --wheel-dir out/wheel
	$(RUN) -W ignore -m cyclonedx_py requirements requirements/base.txt --pyproject pyproject.toml \
	  --output-reproducible --output-format JSON --output-file out/wheel/fairdrop.cdx.json
	cd out/wheel && $(abspath $(RUN)) -m wheel unpack fairdrop-*.whl
	cd out/wheel/fairdrop-*/fairdrop-*.dist-info && mkdir sboms && mv ../../fairdrop.cdx.json sboms
	cd out/wheel && $(abspath $(RUN)) -m wheel pack fairdrop-*/ && rm -r fairdrop-*/

.PHONY: up
up: ## start the scaled-out shop with Docker Compose (needs .env, see .env.example)
	@docker compose up --build --detach --wait --wait-timeout 900 || { \
	  echo "It does not run. A setting that is refused is named by: docker compose logs migrate" >&2; exit 1; \
	}

.PHONY: down
down: ## stop the scaled-out shop with all its profiles, keep its data
	docker compose --profile '*' down

.PHONY: clean
clean: ## remove the demo's data, .fairdrop/media with uploaded pictures, staticfiles, caches and reports; the virtual environment stays
	@if kill -0 "$$(cat .fairdrop/demo.lock 2>/dev/null)" 2>/dev/null; then \
	  echo "A demo is running here: end it with Ctrl-C first." >&2; exit 1; \
	fi
	@if [ -L .fairdrop/elsewhere ]; then rm -rf "$$(readlink .fairdrop/elsewhere)"; fi
	rm -rf .fairdrop .pytest_cache .mypy_cache .ruff_cache .hypothesis out staticfiles
	find . -name __pycache__ -type d -not -path './$(VENV)/*' -prune -exec rm -rf {} +

# The virtual environment, made once; each stamp says that its pins are installed.
$(VENV)/load.stamp: requirements/load.txt $(VENV)/made.stamp
	@echo "Installing requirements/load.txt into $(VENV) (once) ..."
	@$(INSTALL) -r requirements/load.txt
	@touch $@

$(VENV)/dev.stamp: requirements/dev.txt $(VENV)/made.stamp
	@echo "Installing requirements/dev.txt into $(VENV) (once) ..."
	@$(INSTALL) -r requirements/dev.txt
	@touch $@ $(VENV)/load.stamp

$(VENV)/bench.stamp: requirements/bench.txt $(VENV)/made.stamp
	@echo "Installing requirements/bench.txt into $(VENV) (once) ..."
	@$(INSTALL) -r requirements/bench.txt
	@touch $@ $(VENV)/load.stamp $(VENV)/dev.stamp

$(VENV)/made.stamp:
	@for candidate in $(PYTHON) python3 python3.11 python3.12 python3.13 python3.14; do \
	  if $$candidate -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null; then found=$$candidate; break; fi; \
	done; \
	if [ -z "$$found" ]; then \
	  echo "Python 3.11 or newer is needed: install it, or name it with make PYTHON=/path/to/python3." >&2; exit 1; \
	fi; \
	rm -rf $(VENV); \
	$$found -m venv $(VENV) || { \
	  rm -rf $(VENV); \
	  echo "The venv module of $$found does not work: install it (Debian: apt-get install python3-venv)." >&2; exit 1; \
	}
	@touch $@
