# Two commands are enough: `make run` and `make test`. `make help` lists the rest.
#
# The Makefile only puts commands in order. What a step does stands in cargo, in xtask/ (house rules)
# and in tests/install.sh (what the tests need that a machine lacks).

CARGO  ?= cargo
TARGET := $(or $(CARGO_TARGET_DIR),target)
# Where the tests look for the daemon; an absolute path, because cargo runs them in their own folder.
TOWLINE_BIN ?= $(abspath $(TARGET))/release/towline
export TOWLINE_BIN

.DEFAULT_GOAL := help
.PHONY: help run run-group quickstart build install test install-tests fmt tidy licences clippy unit e2e doc deny format clean \
  loom sim mutants lab-build lab-restart lab-restart-quick lab-failover lab-failover-quick lab-net lab-group lab-group-peers lab-group-quick \
  lab-steady lab-steady-quick lab-neighbours lab-neighbours-quick lab-crr lab-crr-peers lab-crr-quick chaos \
  region-rounds

help: ## this list
	@grep -E '^[a-z0-9-]+:.*## ' $(MAKEFILE_LIST) | awk -F ':.*## ' '{ printf "  make %-18s %s\n", $$1, $$2 }'

# Built in half the time of `make build`; not for packages, and not for measuring.
QUICKSTART_BIN = $(abspath $(TARGET))/quickstart/towline

run: quickstart ## build quickly, and start the queue manager QM1 on 127.0.0.1:5672, its data in ./data
	exec $(QUICKSTART_BIN) run QM1 --data ./data/QM1 --listen 127.0.0.1:5672

run-group: quickstart ## build quickly, and start a group of three instances on 127.0.0.1:5672 to 5674, its data in ./data/group
	exec $(QUICKSTART_BIN) group demo --dir ./data/group

quickstart: ## build the command `towline` without link-time optimisation
	$(CARGO) build --profile quickstart --locked --package towline-cli

build: ## build the command `towline` (release)
	$(CARGO) build --release --locked --package towline-cli

PREFIX ?= /usr/local

install: build ## the command, its manual pages and completions, below PREFIX (/usr/local) in DESTDIR
	install -D -m 755 $(TOWLINE_BIN) $(DESTDIR)$(PREFIX)/bin/towline
	$(TOWLINE_BIN) man $(DESTDIR)$(PREFIX)/share/man/man1
	install -d $(DESTDIR)$(PREFIX)/share/bash-completion/completions \
	  $(DESTDIR)$(PREFIX)/share/zsh/site-functions $(DESTDIR)$(PREFIX)/share/fish/vendor_completions.d
	$(TOWLINE_BIN) completions bash > $(DESTDIR)$(PREFIX)/share/bash-completion/completions/towline
	$(TOWLINE_BIN) completions zsh > $(DESTDIR)$(PREFIX)/share/zsh/site-functions/_towline
	$(TOWLINE_BIN) completions fish > $(DESTDIR)$(PREFIX)/share/fish/vendor_completions.d/towline.fish

test: ## install what the tests lack, then run all of them; this is what the gate runs
	@set -e; for step in install-tests fmt tidy licences clippy build unit loom e2e; do \
	  started=$$(date +%s); printf '\n==> make %s\n' $$step; \
	  $(MAKE) --no-print-directory $$step; \
	  printf '==> make %s: ok, %s s\n' $$step $$(( $$(date +%s) - started )); \
	done; printf '\nall tests passed\n'

install-tests: ## packages and libraries of the tests (Debian when root, Maven, npm, PyPI, Go)
	tests/install.sh

fmt: ## formatting is as rustfmt writes it
	$(CARGO) fmt --all --check

tidy: ## house rules: sizes, names, dependency matrix, links
	$(CARGO) xtask tidy

licences: ## licence and origin of every dependency, against deny.toml
	$(CARGO) xtask licences

clippy: ## lints are errors
	$(CARGO) clippy --workspace --all-targets --locked -- -D warnings

unit: ## tests of every crate
	$(CARGO) xtask test unit

# A folder of its own: the flag would have everything built anew.
loom: ## all interleavings of the delegation lock
	RUSTFLAGS='--cfg loom' CARGO_TARGET_DIR=$(abspath $(TARGET))/loom \
	  $(CARGO) test --release --lib --package towline-delegation --locked

e2e: build ## black box: the real daemon with other people's clients, kill -9, torn logs
	$(CARGO) xtask test e2e

# Knobs of the simulator: `make sim KIND=model` (or cluster, the default, alone, crash, one, one-crash, regions), `SECONDS=600`, `SEEDS=0..10000`, `SEED=17`,
# `ARGS='--json --threads 1'`.
SIM_KNOBS = $(if $(KIND),--kind $(KIND)) $(if $(SEED),--seed $(SEED),$(if $(SEEDS),--seeds $(SEEDS),--seconds $(or $(SECONDS),60)))

sim: ## simulated queue managers under faults for a minute; SEED=N repeats one
	$(CARGO) run --quiet --profile simulation --locked --package towline-sim -- $(SIM_KNOBS) $(ARGS)

# Knobs: `make mutants ONLY='log half-a-unit-applied'` (mutants, or files of tests/mutants/), `ARGS='--killer sim --json'`.
mutants: ## put bugs into a copy of the tree, one by one: which test finds each? (half an hour)
	$(CARGO) xtask mutants $(ARGS) $(ONLY)

doc: ## reference of the code in target/doc, warnings are errors
	RUSTDOCFLAGS='-D warnings' $(CARGO) doc --workspace --no-deps --locked

deny: ## cargo-deny, built once (some minutes) under target/tools
	test -x $(TARGET)/tools/bin/cargo-deny || $(CARGO) install --locked cargo-deny --root $(TARGET)/tools
	$(TARGET)/tools/bin/cargo-deny --locked check licenses bans sources

format: ## format all code
	$(CARGO) fmt --all

# Knobs of the lab, for example `make lab-restart DEPTHS=0,100000 ROUNDS=3 DELAYS=1 KEEP=1`.
LAB_KNOBS = $(if $(DEPTHS),--depths $(DEPTHS)) $(if $(QUEUES),--queues $(QUEUES)) \
  $(if $(ROUNDS),--rounds $(ROUNDS)) $(if $(SIZE),--size $(SIZE)) $(if $(DELAYS),--delays $(DELAYS)) \
  $(if $(ONLY),--only $(ONLY)) $(if $(KEEP),--keep)
LAB_RESTART = python3 lab/restart.py --towline $(TOWLINE_BIN) \
  --slow-disk $(abspath $(TARGET))/release/slow-disk

lab-build: build
	$(CARGO) build --release --locked --package towline-e2e --bin slow-disk

lab-restart: lab-build ## restart after kill -9 by depth, delay and load (root; about 30 min, 30 GB)
	$(LAB_RESTART) $(LAB_KNOBS)

lab-restart-quick: lab-build ## the same, small: does it run at all (2 min)
	python3 -m unittest discover --quiet --start-directory lab
	$(LAB_RESTART) --name restart-quick --depths 0,2000 --rounds 2 --delays 0,1 --tail 1000 --uncommitted 4000 \
	  --load-seconds 2 --image-seconds 2 --image-depth 2000 --grow-gb 2 --one-queue-depth 2000 $(LAB_KNOBS)

FAILOVER_KNOBS = $(if $(ROUNDS),--rounds $(ROUNDS)) $(if $(ONLY),--only $(ONLY)) \
  $(if $(TOPOLOGIES),--topologies $(TOPOLOGIES)) $(if $(KEEP),--keep)

lab-failover: build ## three topologies; switch, kill, SIGSTOP, dropped packets: until clients are back (root; 30 min)
	python3 lab/failover.py --towline $(TOWLINE_BIN) $(FAILOVER_KNOBS)

lab-failover-quick: build ## the same, once each (3 min)
	python3 -m unittest discover --quiet --start-directory lab
	python3 lab/failover.py --towline $(TOWLINE_BIN) --name failover-quick --rounds 1 $(FAILOVER_KNOBS)

# Knobs: ROUNDS, ONLY (single, distance; peers, kill), SECONDS (of each measurement), DELAY_MS (of each sync), KEEP=1.
LAB_GROUP = python3 lab/group.py --towline $(TOWLINE_BIN) --slow-net $(abspath $(TARGET))/release/slow-net
GROUP_KNOBS = $(if $(ROUNDS),--rounds $(ROUNDS)) $(if $(ONLY),--only $(ONLY)) $(if $(SECONDS),--seconds $(SECONDS)) \
  $(if $(DELAY_MS),--sync-delay-ms $(DELAY_MS)) $(if $(KEEP),--keep)

lab-net: build
	$(CARGO) build --release --locked --package towline-e2e --bin slow-net

lab-group: lab-net ## a group against a single instance, and with distance between its instances (10 min)
	$(LAB_GROUP) --only single,distance $(GROUP_KNOBS)

lab-group-peers: lab-net ## a group beside RabbitMQ quorum queues and NATS R3 (root, Go; 15 min)
	$(LAB_GROUP) --name group-peers --only peers,kill $(GROUP_KNOBS)

lab-group-quick: lab-net ## both, small: does it run at all (3 min)
	python3 -m unittest discover --quiet --start-directory lab
	$(LAB_GROUP) --name group-quick --rounds 1 --seconds 2 $(GROUP_KNOBS)

# Knobs: MINUTES, SEED, DELAY_MS (of each sync), CLIENTS.
STEADY_KNOBS = $(if $(MINUTES),--minutes $(MINUTES)) $(if $(SEED),--seed $(SEED)) \
  $(if $(DELAY_MS),--sync-delay-ms $(DELAY_MS)) $(if $(CLIENTS),--clients $(CLIENTS))

lab-steady: build ## an hour of full load, instances stopped for a moment: nobody may be elected
	python3 lab/steady.py --towline $(TOWLINE_BIN) $(STEADY_KNOBS)

lab-steady-quick: build ## the same for a minute
	python3 lab/steady.py --towline $(TOWLINE_BIN) --name steady-quick --minutes 1 $(STEADY_KNOBS)

# Knobs: ONLY (selector,clear; `python3 lab/neighbours.py --list` names them), DEPTH (messages), MANY (connections, links,
# queues), MEGABYTES (of a large message), SECONDS (of each measurement), ROUNDS, KEEP=1; PAGE=1 puts the table into
# docs/benchmarks/neighbours.md.
LAB_NEIGHBOURS = python3 lab/neighbours.py --towline $(TOWLINE_BIN) --slow-disk $(abspath $(TARGET))/release/slow-disk
NEIGHBOURS_KNOBS = $(if $(ONLY),--only $(ONLY)) $(if $(DEPTH),--depth $(DEPTH)) $(if $(MANY),--many $(MANY)) \
  $(if $(MEGABYTES),--megabytes $(MEGABYTES)) $(if $(SECONDS),--seconds $(SECONDS)) $(if $(ROUNDS),--rounds $(ROUNDS)) \
  $(if $(KEEP),--keep) $(if $(PAGE),--page docs/benchmarks/neighbours.md)

lab-neighbours: lab-build ## what one client notices of each thing that another one does (root; 40 min, 10 GB)
	$(LAB_NEIGHBOURS) $(NEIGHBOURS_KNOBS)

lab-neighbours-quick: lab-build ## the same, small: does it run at all (4 min)
	python3 -m unittest discover --quiet --start-directory lab
	$(LAB_NEIGHBOURS) --name neighbours-quick --depth 5000 --many 200 --megabytes 5 --seconds 1 $(NEIGHBOURS_KNOBS)

# Knobs: ROUNDS, ONLY (ladder, fixed, backlog, line), SECONDS (of each measurement of fixed), KEEP=1.
LAB_CRR = python3 lab/crr.py --towline $(TOWLINE_BIN) --slow-net $(abspath $(TARGET))/release/slow-net
CRR_KNOBS = $(if $(ROUNDS),--rounds $(ROUNDS)) $(if $(ONLY),--only $(ONLY)) $(if $(SECONDS),--seconds $(SECONDS)) \
  $(if $(KEEP),--keep)

lab-crr: lab-net ## two groups of three 40 ms apart, with and without replication between them (20 min, 20 GB)
	$(LAB_CRR) $(CRR_KNOBS)

lab-crr-peers: lab-net ## Artemis with and without its mirror over the same proxy (Maven; 7 min)
	$(LAB_CRR) --name crr-peers --only artemis --rounds 3 $(CRR_KNOBS)

lab-crr-quick: lab-net ## the same, small: does it run at all (4 min)
	python3 -m unittest discover --quiet --start-directory lab
	$(LAB_CRR) --quick $(CRR_KNOBS)

# Knobs: ROUNDS, SEED, FIRST (number of the first round), MINUTES, JOBS (groups side by side), POWER (stays, one,
# goes: whose disks forget what was not synced).
CHAOS_KNOBS = $(if $(ROUNDS),--rounds $(ROUNDS)) $(if $(SEED),--seed $(SEED)) $(if $(FIRST),--first $(FIRST)) \
  $(if $(MINUTES),--minutes $(MINUTES)) $(if $(JOBS),--jobs $(JOBS)) $(if $(POWER),--power $(POWER))

chaos: build ## random faults on groups of real processes, judged after each round (root; 15 min)
	$(CARGO) run --quiet --release --locked --package towline-e2e --bin chaos -- $(CHAOS_KNOBS)

# Knobs: ROUNDS, SEED, FIRST, MINUTES as above, and SIZE (instances of each group: 1 or 3).
ROUNDS_KNOBS = $(if $(ROUNDS),--rounds $(ROUNDS)) $(if $(SEED),--seed $(SEED)) $(if $(FIRST),--first $(FIRST)) \
  $(if $(MINUTES),--minutes $(MINUTES)) $(if $(SIZE),--size $(SIZE))

region-rounds: build ## random changes of roles of two regions of real processes, judged after each (200 rounds; 10 min)
	$(CARGO) run --quiet --release --locked --package towline-e2e --bin region_rounds -- $(ROUNDS_KNOBS)

clean: ## remove what was built; messages in ./data stay
	$(CARGO) clean
