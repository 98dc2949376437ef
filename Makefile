# Two commands do all set-up on a fresh machine: `make demo` and `make test`. Both make the environment in .venv first.
PYTHON ?= python3
VENV   ?= .venv
BIN    := $(VENV)/bin
# `make live`: a real engine on the CPU, in an environment of its own. TORCH_INDEX= (empty) takes pip's own index.
LIVE        := live/.venv
TORCH_INDEX ?= https://download.pytorch.org/whl/cpu
# `make oracle`: SGLang's own sizing code of these releases, against `predict`.
ORACLE      := oracle/.venv
RELEASES    ?= 0.5.6 0.5.6.post1 0.5.6.post2 0.5.7 0.5.8 0.5.8.post1 0.5.9 0.5.10 0.5.10.post1 0.5.11 0.5.12 \
               0.5.12.post1 0.5.13 0.5.13.post1 0.5.14 0.5.15 0.5.15.post1 0.5.16 0.5.17 0.5.18 0.5.19 0.5.20 0.5.21 0.5.22 0.5.23
# Of these CI keeps answers: releases that size otherwise than those before and after them, and the newest.
STORED      ?= 0.5.6.post2 0.5.7 0.5.9 0.5.12 0.5.16 0.5.17 0.5.18 0.5.20 0.5.22 0.5.23
EXAMPLES    ?= 2000
SEED        ?= 1
# … and every start of these.
CAMPAIGNS   := params/h200-tp4.yaml params/h200-tp8.yaml
# `make fuzz`: so long.
SECONDS     ?= 60
STAMP  := $(VENV)/.installed
# editable_mode=compat: a plain path entry. setuptools' own way is asked after the working directory, so that in the folder
# above a clone that is called specbench the clone itself would be imported.
# CI installs exactly what requirements.lock names; everybody else gets what the ranges of pyproject.toml allow.
# CI compiles only what it imports, when it does: to compile all that is installed takes half a minute.
PINS   := $(if $(CI),-c requirements.lock --no-compile)
# Without compiled files every process that a test starts would compile everything again.
unexport PYTHONDONTWRITEBYTECODE

.DEFAULT_GOAL := help
.PHONY: help env demo test lint unit notebooks live live-test oracle oracle-store bench docs fuzz lock clean

help:          ## this list
	@grep -hE '^[a-z-]+: .*##' $(MAKEFILE_LIST) | sed -E 's/^([a-z-]+): [^#]*## */  make \1\t/'

env: $(STAMP)  ## the environment in .venv (no GPU, no engine)

$(STAMP): pyproject.toml requirements.lock
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check $(PINS) --config-settings editable_mode=compat -e '.[notebook,test]'
	@touch $@

demo: $(STAMP) ## run the recorded campaign: papermill, reconciliation, report
	$(BIN)/specbench run params/demo.yaml

# Linting and notebooks take one core each, the tests all of them.
test: $(STAMP) ## everything CI checks: lint, types, notebooks, tests
	$(MAKE) -j2 lint notebooks
	$(MAKE) unit

lint: $(STAMP) ## ruff and mypy
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy

# Files in the order of tests/conftest.py: without --no-loadscope-reorder those of the fewest tests, which take
# longest, would come last.
unit: $(STAMP) ## the tests
	$(BIN)/pytest -n 3 --dist loadfile --no-loadscope-reorder

notebooks: $(STAMP) ## the notebooks say what they said: hygiene and nbval
	$(BIN)/specbench notebooks --check
	runs=$$(mktemp -d) && trap 'rm -rf "$$runs"' EXIT && \
	  SPECBENCH_RUNS="$$runs" $(BIN)/pytest --nbval --nbval-current-env notebooks -p no:cacheprovider

live: $(STAMP) $(LIVE)/.installed ## a campaign of real SGLang servers on the CPU, tiny model (installs 1.6 GB)
	$(BIN)/specbench run params/live.yaml

live-test: $(STAMP) $(LIVE)/.installed ## how real servers start, crash, are killed and are gone (half an hour)
	$(BIN)/pytest -m live tests/live -n 0

$(LIVE)/.installed: $(wildcard live/requirements*.txt live/shims/*.* live/shims/*/*.py)
	$(PYTHON) -m venv $(LIVE)
	$(LIVE)/bin/python -m pip install --quiet --disable-pip-version-check \
	  $(if $(TORCH_INDEX),--index-url $(TORCH_INDEX)) -r live/requirements-torch.txt
	$(LIVE)/bin/python -m pip install --quiet --disable-pip-version-check -r live/requirements.txt
	$(LIVE)/bin/python -m pip install --quiet --disable-pip-version-check --no-deps \
	  -r live/requirements-nodeps.txt ./live/shims
	@touch $@

oracle: $(STAMP) $(ORACLE)/.installed ## SGLang's own sizing code, without a GPU, against predict (installs 5 GB)
	$(BIN)/python -m oracle.compare.campaigns $(CAMPAIGNS)
	$(BIN)/python -m oracle.compare $(RELEASES) --examples $(EXAMPLES) --seed $(SEED)

oracle-store: $(STAMP) $(ORACLE)/.installed ## the same of STORED, and keeps its answers for CI (tests/oracle)
	$(BIN)/python -m oracle.compare.campaigns $(CAMPAIGNS) --store
	$(BIN)/python -m oracle.compare $(STORED) --examples $(EXAMPLES) --seed $(SEED) --store

$(ORACLE)/.installed: oracle/install.py oracle/compare/engines.py $(wildcard oracle/requirements*.txt)
	$(PYTHON) -m venv $(ORACLE)
	$(ORACLE)/bin/python -m pip install --quiet --disable-pip-version-check \
	  $(if $(TORCH_INDEX),--index-url $(TORCH_INDEX)) -r oracle/requirements-torch.txt
	$(ORACLE)/bin/python -m pip install --quiet --disable-pip-version-check -r oracle/requirements.txt
	$(BIN)/python -m oracle.install $(ORACLE)
	@touch $@

bench: $(STAMP) ## speed, as ratios within one run
	for b in benchmarks/*.py; do $(BIN)/python $$b || exit 1; done

# Not a part of CI. atheris has wheels for Linux only; what it finds is in .fuzz/crash-… and stays there.
fuzz: $(STAMP) ## whatever is given as a log is answered or refused, for SECONDS=60
	$(BIN)/python -m pip install --quiet --disable-pip-version-check 'atheris>=3,<4'
	mkdir -p .fuzz
	$(BIN)/python -m tests.fuzz.fuzz_log -max_total_time=$(SECONDS) -artifact_prefix=.fuzz/ .fuzz

docs: $(STAMP) ## docs/params.md from the configuration's types, docs/findings.md from the catalogue, docs/exactness.md from recordings
	$(BIN)/python -c 'from specbench.configuration.reference import markdown; print(markdown(), end="")' > docs/params.md
	$(BIN)/python -c 'from specbench.diagnose.catalogue import markdown; print(markdown(), end="")' > docs/findings.md
	$(BIN)/python -m specbench.studies.exactness_page tests/records tests/starts.yaml tests/cases.yaml > docs/exactness.md

lock:          ## freeze a fresh environment into requirements.lock (with the oldest Python 3.11 at hand)
	rm -rf .lock-venv && $(PYTHON) -m venv .lock-venv
	.lock-venv/bin/python -m pip install --quiet --disable-pip-version-check --config-settings editable_mode=compat -e '.[notebook,test]'
	(echo "# Exact versions that CI installs (constraints): a fresh environment of '.[notebook,test]', frozen."; \
	 echo "# Renew: make lock"; .lock-venv/bin/python -m pip freeze --exclude-editable) > requirements.lock
	rm -rf .lock-venv

clean:         ## remove what runs made (records in runs/ too)
	rm -rf runs .pytest_cache .mypy_cache .ruff_cache .hypothesis .fuzz
