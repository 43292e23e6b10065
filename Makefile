# The menu. Every target installs what it needs into $(VENV); nothing else is touched.
#
#   make run HOST=0.0.0.0 PORT=8080        make test PYTHON=python3.12 VENV=.venv312

PYTHON ?= python3
VENV ?= .venv
HOST ?= 127.0.0.1
PORT ?= 8000
VERSIONS ?= 3.11 3.12 3.13 3.14
SHARED ?= ../shared
PYTEST_ARGS ?=
BENCH_ARGS ?=
SUITES_ARGS ?=

.DEFAULT_GOAL := help
.SUFFIXES:
.DELETE_ON_ERROR:

export PIP_DISABLE_PIP_VERSION_CHECK := 1
export PYTHONUNBUFFERED := 1

PY := $(VENV)/bin/python
PIP := $(PY) -m pip --quiet
export PYO3_PYTHON := $(abspath $(PY))
# Stamps: what is in the venv, so that a second `make test` only tests.
STAMPS := $(VENV)/.pelton
CARGO_TARGET := $(or $(CARGO_TARGET_DIR),target)
LOAD := $(CARGO_TARGET)/release/pelton-load
# Counts heap requests of the process it is preloaded into.
SPY := $(CARGO_TARGET)/release/libpelton_heapspy.so
export PELTON_HEAPSPY := $(abspath $(SPY))

find = $(shell find $(1) -type f $(2) 2>/dev/null)
NATIVE_SOURCES := $(call find,crates,'(' -name '*.rs' -o -name Cargo.toml ')') Cargo.toml Cargo.lock
SOURCES := $(NATIVE_SOURCES) $(call find,python,'(' -name '*.py' -o -name '*.pyi' -o -name py.typed ')')
LOAD_SOURCES := $(call find,benches/load,'(' -name '*.rs' -o -name Cargo.toml ')') Cargo.toml Cargo.lock

help: ## this menu
	@echo "targets of this Makefile (variables: PYTHON=$(PYTHON) VENV=$(VENV)):"
	@sed -n 's/^\([a-z-]*\):.*## /\1|/p' $(MAKEFILE_LIST) | while IFS='|' read -r name text; do \
		printf '  %-14s %s\n' "$$name" "$$text"; done

# -- what is in the venv ---------------------------------------------------------------------------

$(STAMPS)/venv:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
		{ echo "Python 3.11 or newer is needed: make PYTHON=/path/to/python3.11 ..." >&2; exit 1; }
	@command -v cargo >/dev/null || { echo "Rust is needed: https://rustup.rs" >&2; exit 1; }
	@echo "making $(VENV) with $$($(PYTHON) -V)"
	@$(PYTHON) -m venv $(VENV)
	@$(PIP) install --upgrade 'pip>=25.1'
	@mkdir -p $(STAMPS) && touch $@

# One stamp for each dependency group of pyproject.toml.
$(STAMPS)/group-%: pyproject.toml | $(STAMPS)/venv
	@echo "installing the '$*' requirements"
	@$(PIP) install --group $*
	@touch $@

# The wheel is installed, not the tree: tests see what users get.
$(STAMPS)/pelton: $(SOURCES) pyproject.toml | $(STAMPS)/group-build
	@echo "building the release extension (a minute or two the first time)"
	@PATH="$(abspath $(VENV))/bin:$$PATH" $(PIP) install --no-build-isolation --no-deps --force-reinstall .
	@touch $@

$(LOAD): $(LOAD_SOURCES)
	cargo build --locked --release -p pelton-load
	@touch $@

$(SPY): $(call find,benches/heapspy,'(' -name '*.rs' -o -name Cargo.toml ')') Cargo.toml Cargo.lock
	cargo build --locked --release -p pelton-heapspy
	@touch $@

# -- use -------------------------------------------------------------------------------------------

build: $(STAMPS)/pelton ## build the release extension into the venv

run: $(STAMPS)/pelton $(STAMPS)/group-serve ## serve examples/asgi_app.py on pelton until Ctrl-C
	@HOST=$(HOST) PORT=$(PORT) exec $(PY) tools/serve.py

demo: $(STAMPS)/pelton $(STAMPS)/group-bench $(LOAD) ## the same under load, HTTP and HTTPS, beside asyncio, uvloop and aiofastnet; ends by itself
	@$(PY) benches/http_demo.py $(BENCH_ARGS)

# -- tests -----------------------------------------------------------------------------------------

test: test-rust test-python ## all tests: Rust, doctests, pytest

# The extension has no Rust tests of its own: its tests are Python's. The counter of heap requests
# is only ever preloaded.
RUST_TESTS := --locked --workspace --exclude pelton-python --exclude pelton-heapspy

test-rust: export RUSTFLAGS += -D warnings
test-rust: | $(STAMPS)/venv
	@if cargo nextest --version >/dev/null 2>&1; \
		then set -x; cargo nextest run $(RUST_TESTS); \
		else set -x; cargo test $(RUST_TESTS) --all-targets; \
	fi
	cargo test $(RUST_TESTS) --doc

# Warnings are errors, the order is random, each test has a bound: see pyproject.toml.
test-python: $(STAMPS)/pelton $(STAMPS)/group-test $(SPY)
	$(PY) -m pytest $(PYTEST_ARGS)
	PELTON_TLS=fallback $(PY) -m pytest -m "not slow" $(TLS_TESTS) $(PYTEST_ARGS)

# TLS has two engines; the second run has the one that works where libssl cannot be reached.
TLS_TESTS := tests/tls

soak: $(STAMPS)/pelton $(STAMPS)/group-test ## hundreds of life cycles; descriptors, threads and memory must stay level
	$(PY) -m pytest -m slow $(PYTEST_ARGS)

# Files apart from those that count, time or start processes: there valgrind would be the subject.
MEMCHECK_TESTS ?= $(addprefix tests/tls/test_,callbacks.py close.py context.py handshake.py start_tls.py transfer.py)
memcheck: $(STAMPS)/pelton $(STAMPS)/group-test ## the TLS tests under valgrind; fails on an error of pelton's code
	$(PY) tools/memcheck.py -m "not slow" $(MEMCHECK_TESTS)
	PELTON_TLS=fallback $(PY) tools/memcheck.py -m "not slow" tests/tls/test_transfer.py tests/tls/test_callbacks.py

# On stable: inputs of a fixed seed. With nightly: `cargo +nightly fuzz run TARGET`.
FUZZ := fuzz/Cargo.toml
fuzz: ## run each fuzz target on 100,000 inputs
	for target in $(notdir $(basename $(wildcard fuzz/fuzz_targets/*.rs))); do \
		cargo run --locked --release --manifest-path $(FUZZ) --bin $$target || exit 1; done

loom: ## try every interleaving of the waker, half a minute
	RUSTFLAGS="--cfg loom" cargo test --locked --release -p pelton loom

# -- checks ----------------------------------------------------------------------------------------

CHECKS := check-layout check-rustfmt check-clippy check-ruff check-mypy check-pyright check-stubs check-deny

check: $(CHECKS) ## format, lints, types, stubs, dependencies, layout

check-layout:
	$(PYTHON) tools/check_layout.py

check-rustfmt:
	cargo fmt --all --check
	cargo fmt --manifest-path $(FUZZ) --check

check-clippy: | $(STAMPS)/venv
	cargo clippy --locked --workspace --all-targets -- -D warnings
	cargo clippy --locked --manifest-path $(FUZZ) -- -D warnings

check-ruff: $(STAMPS)/group-check
	$(PY) -m ruff check .
	$(PY) -m ruff format --check .

check-mypy: $(STAMPS)/group-check $(STAMPS)/group-bench
	$(PY) -m mypy python/pelton tools
	$(PY) -m mypy benches/*.py

# Against the installed package, as a user's checker sees it.
check-pyright: $(STAMPS)/pelton $(STAMPS)/group-check
	$(PY) -m basedpyright --pythonpath $(PY)

check-stubs: $(STAMPS)/pelton $(STAMPS)/group-check
	$(PY) -m mypy.stubtest pelton._pelton --allowlist tools/stubtest-allowlist.txt

check-deny:
	@if cargo deny --version >/dev/null 2>&1 || [ "$(CI)" = true ]; then \
		$(MAKE) --no-print-directory deny; \
	else \
		echo "SKIPPED: cargo-deny is not installed; 'make deny' installs it (some minutes) and runs it" >&2; \
	fi

deny: ## licences, bans and sources of the dependencies; installs cargo-deny when it is missing
	@cargo deny --version >/dev/null 2>&1 || cargo install --locked cargo-deny
	cargo deny --locked check bans licenses sources

format: $(STAMPS)/group-check ## format all Rust and Python
	cargo fmt --all
	cargo fmt --manifest-path $(FUZZ)
	$(PY) -m ruff check --fix-only --select I .
	$(PY) -m ruff format .

# -- measurements ----------------------------------------------------------------------------------

bench: $(STAMPS)/pelton $(STAMPS)/group-bench $(LOAD) $(SPY) ## the benchmarks of docs/performance.md; results in benches/results
	$(PY) benches/compare.py $(BENCH_ARGS)
	$(PY) benches/compare.py --kinds buffered streams --sizes 1024 --name kinds $(BENCH_ARGS)
	$(PY) benches/scheduling.py
	$(PY) benches/idle.py
	$(PY) benches/syscalls.py
	$(PY) benches/compare.py --tls --name tls asyncio uvloop aiofastnet+uvloop pelton $(BENCH_ARGS)
	$(PY) benches/idle.py --tls --name tls-idle
	$(PY) benches/idle.py --tls --size 16000 --name tls-idle-16k
	$(PY) benches/handshakes.py
	$(PY) benches/heap.py
	$(PY) benches/postgres.py
	$(PY) benches/datagram.py

MINUTES ?= 2
endurance: $(STAMPS)/pelton $(STAMPS)/group-bench ## MINUTES=2 of mixed load with faults: HTTP(S), websockets, PostgreSQL, children
	$(PY) benches/endurance.py --minutes $(MINUTES) --pieces $(shell expr '(' $(MINUTES) + 4 ')' / 5)

chart: $(STAMPS)/group-bench ## draw docs/echo.svg and fill the tables of figures from benches/results
	$(PY) benches/chart.py
	$(PY) benches/report.py

# -- release ---------------------------------------------------------------------------------------

wheels: $(STAMPS)/group-build ## an sdist, and a wheel for each Python of VERSIONS="3.11 3.12 ..." that is found
	$(PY) -m maturin sdist --out dist
	$(PY) -m maturin build --release --locked --out dist $(addprefix -i ,$(shell tools/pythons.sh $(VERSIONS)))

suites: $(STAMPS)/pelton ## the shared conformance suites of tools/suites.txt, where $(SHARED) is there
	$(PY) tools/suites.py --shared $(SHARED) $(SUITES_ARGS)

clean: ## remove the venv and everything built
	rm -rf $(VENV) dist build
	cargo clean

.PHONY: help build run demo test test-rust test-python soak memcheck fuzz loom check $(CHECKS) deny format bench endurance chart wheels suites clean
