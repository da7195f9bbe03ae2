# Every target below makes .venv first, from pyproject.toml and locks/, when it is missing, older than
# they are, or was made while the checkout lay somewhere else.
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

# Every file that is installed is one whose hash a lock holds. A lock is complete: what pip would
# look up for itself is in it.
LOCKED := -m pip install --quiet --no-deps --require-hashes
# This checkout itself, built by the setuptools that is there.
OWN := -m pip install --quiet --no-deps --no-build-isolation

MOVED := $(shell test -f $(READY) && test "$$(cat $(READY))" != "$(CURDIR)" && echo moved)

.PHONY: help demo test unit lint style types contracts evidence evidence-is-here gpu-report gpu-wheels \
	lock audit wheel-test system-deps clean distclean moved

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
	$(BIN)/python $(LOCKED) --requirement locks/fit.txt
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

AUDIT := $(VENV)/audit
COMPILE := $(AUDIT)/bin/uv pip compile --quiet --universal --python-version 3.11 --generate-hashes \
	--no-header --no-annotate --no-emit-index-url --no-emit-find-links --constraint constraints.txt
# torch's CPU builds, which its own index serves beside those of the lock: 2.13.0+cpu for Python
# 3.11 on Linux x86-64. Each more is one word here.
TORCH_CPU := sha256:6746dbcbeb526eb61330b76b41ff1b4eb848951103a892eeb080dfa2b264667b

lock: $(AUDIT)/.ready ## write locks/ anew from pyproject.toml and constraints.txt; needs a network
	$(COMPILE) pyproject.toml --output-file locks/base.txt
	$(COMPILE) pyproject.toml --extra run --extra dev --no-emit-package torch \
		--output-file locks/dev.txt
	$(COMPILE) pyproject.toml --extra fit --output-file locks/fit.txt
	$(COMPILE) --group install --output-file locks/install.txt
	$(COMPILE) --group audit --output-file locks/audit.txt
	rm -f locks/torch.txt
	grep '^torch==' constraints.txt | $(COMPILE) --no-deps - --output-file locks/torch.txt
	for hash in $(TORCH_CPU); do sed -i "1s/$$/\n    --hash=$$hash \\\\/" locks/torch.txt; done
	@# Without the pin of triton, of which that build brings its own, and away from pyproject.toml.
	grep -v '^triton==' constraints.txt >$(AUDIT)/constraints.txt
	grep '^torch==' constraints.txt | UV_NO_CONFIG=1 $(subst --constraint constraints.txt,--constraint \
		$(AUDIT)/constraints.txt,$(COMPILE)) --no-emit-package torch - --output-file locks/cuda.txt

audit: $(AUDIT)/.ready ## look up every locked package among the known weaknesses, where there is a network
	@$(AUDIT)/bin/python benchmarks/harness/audit.py $(AUDIT)/bin/pip-audit locks

$(AUDIT)/.ready: locks/audit.txt | $(READY)
	$(BIN)/python -m venv $(AUDIT)
	$(AUDIT)/bin/python $(LOCKED) --requirement locks/audit.txt
	@touch $@

wheel-test: $(READY) ## build sdist and wheel, install the wheel in a fresh venv elsewhere, use it
	@set -eu; scratch=$$(mktemp -d); trap 'rm -rf "$$scratch"' EXIT; \
	$(BIN)/python -m build --no-isolation --outdir "$$scratch/dist" . >"$$scratch/build.log" 2>&1 \
		|| { cat "$$scratch/build.log"; exit 1; }; \
	$(BIN)/python -m venv "$$scratch/venv"; \
	"$$scratch/venv/bin/python" $(LOCKED) --requirement locks/base.txt; \
	"$$scratch/venv/bin/python" $(OWN) "$$scratch"/dist/*.whl; \
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

$(READY): pyproject.toml $(wildcard locks/*.txt) $(MOVED)
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
	$(BIN)/python $(LOCKED) --requirement locks/install.txt
	@# pip would rather take a build whose hash its index tells than the one that is set up for this
	@# machine. So torch is fetched as pip chooses, and installed if its hash is among the lock's.
	$(BIN)/python -m pip download --quiet --no-deps --only-binary :all: --dest $(VENV)/torch \
		--constraint constraints.txt torch
	$(BIN)/python $(LOCKED) --no-index --find-links $(VENV)/torch --requirement locks/torch.txt
	@rm -rf $(VENV)/torch
	$(BIN)/python $(LOCKED) --requirement locks/dev.txt
	@$(BIN)/python -c 'from importlib.metadata import requires; \
		raise SystemExit(any("triton" in each for each in requires("torch")))' || { set -x; \
		$(BIN)/python $(LOCKED) --requirement locks/cuda.txt; }
	$(BIN)/python $(OWN) --editable .
	$(BIN)/python -m pip check
	@mkdir -p $(LINK) && ln -sfn "$(CURDIR)" $(LINK)/shardwright
	@echo "$(CURDIR)" >$@

moved:
