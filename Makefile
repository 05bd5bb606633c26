# One gate, two commands: `make run` and `make test` do all their set-up themselves.
# What they build stays in $XDG_CACHE_HOME/weir (~/.cache/weir), so that a clean clone on a used machine is fast.

SHELL := bash
.DEFAULT_GOAL := help
CACHE := $(or $(XDG_CACHE_HOME),$(HOME)/.cache)/weir
export CARGO_TARGET_DIR ?= $(CACHE)/target
export PATH := $(CACHE)/tools/bin:$(HOME)/.cargo/bin:$(PATH)

.PHONY: help setup setup-tests run test check fix unit model sim e2e crash conformance s3 soak bench figures

help: ## List what can be made
	@awk -F ':.*## ' '/^[a-z0-9]+:.*## / {printf "  make %-12s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

setup: ## Install what is missing (as root), or say what to install
	@.ci/setup

setup-tests:
	@.ci/setup tests

run: setup ## Build and start a node on defaults; ARGS="--slots 2" passes flags
	@cargo build --locked --release --package weir
	@exec "$(CARGO_TARGET_DIR)/release/weir" serve $(ARGS)

test: setup-tests ## The gate: everything that must hold, in under 15 minutes
	@.ci/gate format lints policy docs unit model sim e2e crash conformance s3

check: setup ## What needs no test run: format, lints, dependency policy, docs. Never writes
	@.ci/gate format lints policy docs

fix: setup ## Format, and apply the lints' own suggestions. Writes
	@cargo fmt --all
	@cargo clippy --locked --workspace --all-targets --all-features --fix --allow-dirty --allow-staged

unit: setup ## Unit and property tests
	@.ci/gate unit

model: setup ## The exhaustive model of ownership and recovery
	@.ci/gate model

sim: setup ## Simulated clusters under faults, 100 seeds; SEED=n replays one and prints all that happened
	@if [ -z "$(SEED)" ]; then .ci/gate sim; else \
		cargo test --locked --workspace --features weir/fault-points --test seeds --no-run && \
		"$(CARGO_TARGET_DIR)/debug/weir-sim" $(SEED) --trace $(ARGS); fi

e2e: setup ## Real nodes: the protocol, bad input, operations
	@.ci/gate e2e

crash: setup ## Real nodes, killed at every step, and their files damaged
	@.ci/gate crash

conformance: setup-tests ## Others' clients: the protocol's public suite, its TypeScript client, the README's tour
	@.ci/gate conformance

s3: setup-tests ## The store's tests and crashes over a real S3 server behind a bad network
	@.ci/gate s3

soak: setup ## The crash suite, ten times as long as in the gate, and an hour of fresh seeds in the simulation
	@WEIR_CRASH_ROUNDS=$${WEIR_CRASH_ROUNDS:-2000} .ci/gate crash
	@WEIR_SIM_SECONDS=$${WEIR_SIM_SECONDS:-3600} cargo test --locked --workspace --features weir/fault-points \
		--test seeds -- --ignored --nocapture

bench: setup ## Beside the official server: about 5 minutes; writes docs/benchmarks.md. ARGS="--only SSE" runs a part
	@.ci/bench $(ARGS)

figures: setup ## Figures of parts: a million streams in the state, idle streams, live readers, segments, lock or task. Asserts only memory
	@cargo build --locked --release --package weir --bins --examples
	@"$(CARGO_TARGET_DIR)/release/examples/lock_or_task"
	@"$(CARGO_TARGET_DIR)/release/examples/segment_read"
	@"$(CARGO_TARGET_DIR)/release/examples/wake_many"
	@"$(CARGO_TARGET_DIR)/release/examples/apply_scale"
	@WEIR_BIN="$(CARGO_TARGET_DIR)/release/weir" cargo test --locked --workspace --features weir/fault-points --test e2e \
		-- --ignored --nocapture --test-threads 1 idle live_
