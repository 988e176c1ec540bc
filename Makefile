# Everything people do with this repository. `make help` lists it.

SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help

# Outside the clone, so that a fresh clone finds what an earlier one compiled. RocksDB alone takes
# minutes: one profile and one set of features everywhere keep it to one compilation.
export CARGO_TARGET_DIR ?= $(HOME)/.cache/martlet/target
export MARTLET_BIN ?= $(CARGO_TARGET_DIR)/release/martlet
CARGO_FLAGS := --workspace --release --locked
SUDO := $(shell [ "$$(id -u)" = 0 ] || echo sudo)
ARGS ?=

.PHONY: help
help: ## This list
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sort | sed -E 's/:.*## /\t/' | expand -t 16

.PHONY: serve
serve: build ## Build and start a server in ./martlet-data; ARGS="--help" says what it takes
	@$(MARTLET_BIN) server $(ARGS)

.PHONY: build
build: tools ## Build the martlet binary
	cargo build $(CARGO_FLAGS)

.PHONY: test
test: tools format lint build unit clients-smoke conformance ## Everything that must pass

.PHONY: format
format: ## Check that the code is formatted
	cargo fmt --all --check

.PHONY: lint
lint: tools ## Clippy and rustdoc, warnings denied
	cargo clippy $(CARGO_FLAGS) --all-targets -- -D warnings
	RUSTDOCFLAGS="-D warnings" cargo doc $(CARGO_FLAGS) --no-deps --quiet

.PHONY: unit
unit: build ## Tests in Rust: of each crate, of the structure, and of real servers
	@# What passing tests print is shown too: their seeds, and what they had to skip.
	cargo test $(CARGO_FLAGS) --no-fail-fast -- --show-output

.PHONY: clients-smoke
clients-smoke: build ## Round trips with boto3 and awscli
	clients/run.sh boto3 awscli

.PHONY: clients
clients: build ## Round trips with every supported S3 client
	clients/run.sh $(ARGS)

.PHONY: conformance
conformance: build ## What S3 clients and attackers send, and what must come back
	tests/s3/run.sh $(ARGS)

.PHONY: conformance-cluster
conformance-cluster: build ## The same against a cluster of processes
	tests/s3/run.sh --cluster $(ARGS)

.PHONY: bench
bench: build ## One table: Martlet beside the limits of this machine
	benches/run.sh $(ARGS)

.PHONY: bench-cluster
bench-cluster: build ## The same for a cluster on this machine: CPU by role, and a node killed
	benches/cluster.sh $(ARGS)

.PHONY: bench-upkeep
bench-upkeep: build ## A node joins under load, and a wiped device is filled again
	benches/upkeep.sh $(ARGS)

.PHONY: bench-erasure
bench-erasure: build ## Coded fragments beside copies on a cluster: CPU, pace, bytes read, space
	benches/erasure_cluster.sh $(ARGS)

.PHONY: cluster
cluster: build ## Build and start a cluster in ./martlet-cluster; ARGS="--help" says what it takes
	@$(MARTLET_BIN) cluster up $(ARGS)

.PHONY: large
large: build ## Objects of several GiB: read in place, and memory stays bounded
	cargo test --release --locked -p martlet-tests --test in_place --test memory \
	  -- --ignored --nocapture --test-threads 1
	cargo test --release --locked -p martlet-tests --test cluster -- --ignored --nocapture sixty_four_uploads

.PHONY: soak
soak: build ## Load, kill and restart for SOAK_SECONDS (600)
	MARTLET_SOAK_SECONDS=$${SOAK_SECONDS:-600} cargo test --release --locked -p martlet-tests --test soak \
	  -- --ignored --nocapture

.PHONY: soak-cluster
soak-cluster: build ## A cluster under load, and misfortune by chance, for SOAK_SECONDS (300)
	MARTLET_SOAK_SECONDS=$${SOAK_SECONDS:-300} cargo test --release --locked -p martlet-tests --test cluster --test probes \
	  -- --ignored --nocapture --test-threads 1 everything_happens

# What compiling RocksDB, running the Python clients and cutting cables between hosts need. Installed
# only if missing.
.PHONY: tools
tools:
	@missing=; \
	command -v c++ >/dev/null || missing="$$missing g++"; \
	ls /usr/lib/llvm*/lib/libclang*.so* /usr/lib/*/libclang*.so* >/dev/null 2>&1 || missing="$$missing libclang-dev"; \
	python3 -c 'import ensurepip, venv' 2>/dev/null || missing="$$missing python3-venv"; \
	command -v mkfs.ext4 >/dev/null || [ -x /sbin/mkfs.ext4 ] || missing="$$missing e2fsprogs"; \
	command -v ip >/dev/null || [ -x /sbin/ip ] || missing="$$missing iproute2"; \
	command -v nft >/dev/null || [ -x /usr/sbin/nft ] || missing="$$missing nftables"; \
	if [ -n "$$missing" ]; then \
	  echo "installing:$$missing"; \
	  $(SUDO) apt-get update -qq && $(SUDO) apt-get install -y -qq --no-install-recommends $$missing; \
	fi
