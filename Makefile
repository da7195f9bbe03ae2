# Every target below makes .venv first, from pyproject.toml and constraints.txt, when it is missing,
# older than either file, or was made while the checkout lay somewhere else.
# PYTHON=/path/to/python3.11 picks the interpreter that .venv is made with.

SHELL := /bin/sh
.DEFAULT_GOAL := help
.DELETE_ON_ERROR:

# The repository's folders are the package's subpackages, so its root must never be a place that
# bare imports are looked up in: `datasets` and `kernels` there are not the ones that other
# libraries mean.
export PYTHONSAFEPATH := 1

VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready
# Holds one link, shardwright -> this checkout, so that the tools that look for a package by its
# folder's name find it in a clone of any name.
LINK := $(VENV)/link

MOVED := $(shell test -f $(READY) && test "$$(cat $(READY))" != "$(CURDIR)" && echo moved)

.PHONY: help demo test unit lint style types contracts evidence evidence-is-here gpu-report gpu-wheels \
	wheel-test system-deps clean distclean moved

help: ## list the targets
	@sed -n 's/^\([a-z-]*\):.*## /\1\t/p' $(firstword $(MAKEFILE_LIST)) | expand -t 12

demo: $(READY) ## plan for this machine, run the plan, compare predicted with measured
	$(BIN)/plan --execute

test: $(READY) ## unit tests on two processes, then the tests that start ranks, alone
	$(BIN)/python -m pytest -n 2 --dist loadgroup -m "not distributed and not evidence" \
		--ignore tests/distributed
	@# One process: its pools of ranks stay warm, and nothing competes with them for the cores.
	@# Only the files that have the mark are read: every test file imported takes ten seconds.
	@test ! -d tests/distributed || { set -x; $(BIN)/python -m pytest \
		-m "distributed and not evidence" tests/distributed \
		$$(grep -rl --include='test_*.py' '\bmark\.distributed\b' tests); }

unit: $(READY) ## the quick tests of every subpackage, in under a minute: a part of make test
	$(BIN)/python -m pytest -n 2 --dist loadgroup -m "not distributed and not evidence" --quick

lint: style types contracts ## ruff, strict types, import contracts (each is a target too)

style: $(READY)
	$(BIN)/ruff check --output-format concise

types: $(READY)
	cd $(LINK) && MYPYPATH="$(CURDIR)/$(LINK)" ../bin/python -m mypy --strict -p shardwright \
		--config-file "$(CURDIR)/pyproject.toml" --cache-dir "$(CURDIR)/.mypy_cache"

contracts: $(READY)
	PYTHONPATH=$(LINK) $(BIN)/lint-imports

evidence: evidence-is-here $(READY) ## the long checks: writes benchmarks/RESULTS.md and its JSON
	@# The item `kernels` fits trees; nothing else needs the library.
	$(BIN)/python -m pip install --quiet --constraint constraints.txt --editable '.[fit]'
	PYTHONPATH=benchmarks:tests/support $(BIN)/python benchmarks/evidence.py

evidence-is-here:
	@test -f benchmarks/evidence.py || { \
		echo "make evidence: benchmarks/evidence.py is missing from this checkout" >&2; exit 1; }

# Neither makes .venv: on a GPU machine the interpreter is the one that has a CUDA build of torch.
GPU_PYTHON = $(firstword $(PYTHON) $(wildcard $(BIN)/python) python3)

gpu-report: ## measure kernels, steps and predictions on this GPU; PYTHON= with torch >= 2.11
	$(GPU_PYTHON) benchmarks/gpu/report.py $(GPU_REPORT)

gpu-wheels: ## fetch the small wheels that gpu-report needs into .wheels/; FOR=3.12, the GPU's Python
	$(GPU_PYTHON) benchmarks/gpu/wheels.py --python $(or $(FOR),3.12)

wheel-test: $(READY) ## build sdist and wheel, install the wheel in a fresh venv elsewhere, use it
	@set -eu; scratch=$$(mktemp -d); trap 'rm -rf "$$scratch"' EXIT; \
	$(BIN)/python -m build --outdir "$$scratch/dist" . >"$$scratch/build.log" 2>&1 \
		|| { cat "$$scratch/build.log"; exit 1; }; \
	$(BIN)/python -m venv "$$scratch/venv"; \
	"$$scratch/venv/bin/python" -m pip install --quiet -c constraints.txt "$$scratch"/dist/*.whl; \
	python="$$scratch/venv/bin/python"; cli=$$(test -e api/cli/main.py -o -d api/cli && echo yes || :); \
	cd "$$scratch"; ls -l dist; \
	"$$python" -c 'import importlib.metadata as m, shardwright as s; \
	print("imported", s.__version__); raise SystemExit(m.version("shardwright") != s.__version__)'; \
	test -z "$$cli" || { venv/bin/plan --version; venv/bin/shardwright --help >/dev/null; }

system-deps: ## install PostgreSQL, Chromium and iproute2, which only some tests want, by apt (as root or sudo)
	@# The tests make a PostgreSQL server of their own, so that one need not run. What is there
	@# already is left alone; without them, `make test` skips, counts and prints their tests.
	@set -eu; wanted=""; \
	ls /usr/lib/postgresql/*/bin/initdb >/dev/null 2>&1 || wanted="$$wanted postgresql"; \
	command -v chromium >/dev/null 2>&1 || wanted="$$wanted chromium"; \
	command -v tc >/dev/null 2>&1 || wanted="$$wanted iproute2"; \
	test -n "$$wanted" || { echo "system-deps: all are here"; exit 0; }; \
	command -v apt-get >/dev/null 2>&1 || { echo "system-deps: no apt-get here; install by hand:" \
		"$$wanted" >&2; exit 1; }; \
	as_root=""; test "$$(id -u)" = 0 || as_root=sudo; \
	test -z "$$as_root" || command -v sudo >/dev/null 2>&1 || { echo "system-deps: neither root" \
		"nor sudo; ask for:$$wanted" >&2; exit 1; }; \
	echo "system-deps: installing$$wanted"; \
	$$as_root env DEBIAN_FRONTEND=noninteractive apt-get update -qq; \
	$$as_root env DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends \
		$$wanted

clean: ## remove what building and checking left behind; keeps .venv
	rm -rf build dist *.egg-info .mypy_cache .ruff_cache .pytest_cache .hypothesis \
		.import_linter_cache
	find . -name __pycache__ -not -path './$(VENV)/*' -prune -exec rm -rf {} +

distclean: clean ## clean, and remove .venv
	rm -rf $(VENV)

$(READY): pyproject.toml constraints.txt $(MOVED)
	@set -eu; test -z "$(MOVED)" || rm -rf $(VENV); \
	if ! test -x $(BIN)/python; then \
		for python in $(PYTHON) python3.11 python3.12 python3 ""; do \
			test -n "$$python" || { echo "make: no Python 3.11 or later with venv and pip:" \
				"install one, or name it: make PYTHON=/path/to/python3.11 ..." >&2; exit 1; }; \
			"$$python" -c 'import sys, ensurepip; sys.exit(sys.version_info < (3, 11))' \
				>/dev/null 2>&1 || continue; \
			echo "making $(VENV) with $$python"; "$$python" -m venv $(VENV); break; \
		done; \
	fi
	$(BIN)/python -m pip install --quiet --constraint constraints.txt --editable '.[run,dev]'
	@mkdir -p $(LINK) && ln -sfn "$(CURDIR)" $(LINK)/shardwright
	@echo "$(CURDIR)" >$@

moved:
