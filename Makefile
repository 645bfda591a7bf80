PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
# newest source of truth for what is installed
STAMP := $(VENV)/.installed
DEV_STAMP := $(VENV)/.installed-dev

.PHONY: demo test lint bench figures clean

demo: $(STAMP)
	mkdir -p out
	$(BIN)/ficco compare --machine mi300x_8 --workload llama3-70b-tp8-qkv-32k \
		--plot out/timeline.png --trace out/trace.json --json out/compare.json
	$(BIN)/ficco report --machine mi300x_8 --workload llama3-70b-tp8-qkv-32k --out out/page.html

test: $(DEV_STAMP) lint
	$(BIN)/pytest -q -n 2 --dist worksteal tests ficco_sim hw_validate
	$(BIN)/pytest -q --doctest-glob=README.md README.md

lint: $(DEV_STAMP)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports
	$(BIN)/deptry ficco_sim hw_validate

bench: $(DEV_STAMP)
	$(BIN)/pytest -q benchmarks --benchmark-only --override-ini addopts=

# every figure of the notebooks, with its numbers, from what is committed
figures: $(DEV_STAMP)
	mkdir -p out
	$(BIN)/python notebooks/figures.py out/figures
	test ! -f docs/figures.py || $(BIN)/python docs/figures.py out/figures

$(STAMP): pyproject.toml
	$(PYTHON) -m venv $(VENV)
	$(BIN)/pip install --quiet --disable-pip-version-check --editable .
	touch $@

$(DEV_STAMP): $(STAMP) pyproject.toml
	$(BIN)/pip install --quiet --disable-pip-version-check --editable '.[dev]'
	touch $@

clean:
	rm -rf $(VENV) out build dist
