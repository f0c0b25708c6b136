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
.PHONY: help run build test install-tests fmt tidy licences clippy unit e2e doc deny format clean

help: ## this list
	@grep -E '^[a-z0-9-]+:.*## ' $(MAKEFILE_LIST) | awk -F ':.*## ' '{ printf "  make %-14s %s\n", $$1, $$2 }'

run: build ## build and start the queue manager QM1 on 127.0.0.1:5672, its data in ./data
	exec $(TOWLINE_BIN) run QM1 --data ./data/QM1 --listen 127.0.0.1:5672

build: ## build the command `towline` (release)
	$(CARGO) build --release --locked --package towline-cli

test: ## install what the tests lack, then run all of them; this is what the gate runs
	@set -e; for step in install-tests fmt tidy licences clippy build unit e2e; do \
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

unit: ## tests of every room
	$(CARGO) test --workspace --exclude towline-e2e --locked

e2e: build ## black box: the real daemon with other people's clients, kill -9, torn logs
	$(CARGO) test --package towline-e2e --locked

doc: ## reference of the code in target/doc, warnings are errors
	RUSTDOCFLAGS='-D warnings' $(CARGO) doc --workspace --no-deps --locked

deny: ## cargo-deny, built once (some minutes) under target/tools
	test -x $(TARGET)/tools/bin/cargo-deny || $(CARGO) install --locked cargo-deny --root $(TARGET)/tools
	$(TARGET)/tools/bin/cargo-deny --locked check licenses bans sources

format: ## format all code
	$(CARGO) fmt --all

clean: ## remove what was built; messages in ./data stay
	$(CARGO) clean
