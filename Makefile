# One gate, two commands: `make run` and `make test` do all their set-up themselves.
# What they build stays in $XDG_CACHE_HOME/weir (~/.cache/weir), so that a clean clone on a used machine is fast.

SHELL := bash
.DEFAULT_GOAL := help
CACHE := $(or $(XDG_CACHE_HOME),$(HOME)/.cache)/weir
export CARGO_TARGET_DIR ?= $(CACHE)/target
export PATH := $(CACHE)/tools/bin:$(HOME)/.cargo/bin:$(PATH)

.PHONY: help setup setup-tests up down run cluster test check fix unit model sim mutants operator kubernetes test-cluster e2e crash conformance conformance-all faults s3 soak bench figures

help: ## List what can be made
	@awk -F ':.*## ' '/^[a-z0-9-]+:.*## / {printf "  make %-16s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

setup: ## Install what is missing (as root), or say what to install
	@.ci/setup

setup-tests:
	@.ci/setup tests

# What was said to make: a CONTEXT or REGISTRY in the environment may be meant for somebody else.
said = $(if $(filter command,$(origin $(1))),$($(1)))
YOURS = SAY_AS=$@ CONTEXT="$(call said,CONTEXT)" REGISTRY="$(call said,REGISTRY)"

up: $(if $(call said,CONTEXT),,setup) ## Kubernetes on this machine with the operator and a cluster; CONTEXT=… REGISTRY=… takes a cluster of yours
	@[ -n "$(call said,CONTEXT)$(call said,REGISTRY)" ] || SAY_AS=up tests/cluster/bed up
	@$(YOURS) tests/cluster/bed weir

down: ## Remove every trace of `make up` from this machine; CONTEXT=… from a cluster of yours
	@$(YOURS) tests/cluster/bed down

run: setup ## Build and start a node on defaults; ARGS="--slots 2" passes flags
	@cargo build --locked --release --package weir
	@exec "$(CARGO_TARGET_DIR)/release/weir" serve $(ARGS)

cluster: setup ## Build and start three nodes on this machine: `weir dev up`; ARGS="--nodes 5 --fresh" passes flags
	@cargo build --locked --release --package weir
	@exec "$(CARGO_TARGET_DIR)/release/weir" dev up $(ARGS)

test: setup-tests ## The gate: everything that must hold, on Kubernetes too, in under 45 minutes
	@.ci/gate format lints policy docs manifests unit model sim operator e2e crash faults conformance s3 kubernetes

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

mutants: setup ## Deliberate mistakes in node and models, each of which must be found: docs/mutants.md. ARGS=NAME runs one
	@WEIR_MUTANT="$(ARGS)" .ci/gate mutants

operator: setup ## The Kubernetes operator, against an API server and nodes in memory
	@.ci/gate operator

kubernetes: setup-tests ## The chart, the operator and clusters on a real Kubernetes, put up here and taken down again; ARGS=FILTER runs a part
	@if [ -z "$(ARGS)" ]; then .ci/gate kubernetes; else .ci/kubernetes all $(ARGS); fi

test-cluster: setup-tests ## All scenarios on Kubernetes, the long ones too; writes docs/reliability.md
	@.ci/cluster-figures

e2e: setup ## Real nodes: the protocol, bad input, operations
	@.ci/gate e2e

crash: setup ## Real nodes, killed at every step, and their files damaged
	@.ci/gate crash

faults: setup ## Clusters of real nodes: killed, hung, cut off, doubled, robbed of their disk
	@.ci/gate faults

conformance: setup-tests ## Others' clients: the protocol's public suite, its TypeScript client, the README's tour, a browser
	@.ci/gate conformance

conformance-all: setup-tests ## The same, and the suite through a node that owns nothing on both versions of Node in both modes
	@.ci/gate conformance conformance_long

s3: setup-tests ## The store's tests and crashes over a real S3 server behind a bad network
	@.ci/gate s3

soak: setup ## The crash suite, ten times as long as in the gate, an hour of simulation, and all that is done to clusters; writes docs/reliability.md
	@WEIR_CRASH_ROUNDS=$${WEIR_CRASH_ROUNDS:-2000} .ci/gate crash
	@WEIR_SIM_SECONDS=$${WEIR_SIM_SECONDS:-3600} cargo test --locked --workspace --features weir/fault-points \
		--test seeds -- --ignored --nocapture
	@.ci/soak

bench: setup ## Beside the official server, and a cluster of three: about 7 minutes; writes docs/benchmarks.md. ARGS="--only SSE" runs a part
	@.ci/bench $(ARGS)

figures: setup ## Figures of parts: a million streams in the state, idle streams, live readers, segments, lock or task. Asserts only memory
	@cargo build --locked --release --package weir --bins --examples
	@"$(CARGO_TARGET_DIR)/release/examples/lock_or_task"
	@"$(CARGO_TARGET_DIR)/release/examples/segment_read"
	@"$(CARGO_TARGET_DIR)/release/examples/wake_many"
	@"$(CARGO_TARGET_DIR)/release/examples/apply_scale"
	@WEIR_BIN="$(CARGO_TARGET_DIR)/release/weir" cargo test --locked --workspace --features weir/fault-points --test e2e \
		-- --ignored --nocapture --test-threads 1 idle live_
