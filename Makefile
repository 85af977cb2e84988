# Every target sets up .venv first; nothing else is needed than Python 3.11 or newer.
PYTHON ?= python3
BIN := .venv/bin
export HF_HUB_OFFLINE := 1
DEMO := runs/directpred-digits
MINUTES ?= 240
# One process, no questions: what `accelerate launch` would otherwise ask for or warn about.
LAUNCH := $(BIN)/accelerate launch --config_file recipes/accelerate/one_cpu.yaml

.PHONY: install demo check lint types docs test test-kernels test-slow test-data test-export test-browser bench claims evidence kills terms clean

install: .venv/installed

.venv/installed: pyproject.toml
	$(PYTHON) -m venv .venv
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -e '.[dev,docs]'
	touch $@

## Train the built-in recipe, probe it, and compare it with its two baselines
demo: install
	$(LAUNCH) recipes/train.py --output $(DEMO) --resume auto
	$(BIN)/python benchmarks/demo_table.py $(DEMO)

## Lint, types and tests
check: install lint types docs
	$(BIN)/python -m pytest -n 2 --dist loadfile --no-loadscope-reorder

test: check

lint: install
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

types: install
	$(BIN)/mypy
	$(BIN)/mypy --platform win32

## The documentation as a site, in build/site
docs: install
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict --quiet

## The tests again, with the kernels of other processors: TESTS=tests/model for a part
test-kernels: install
	$(BIN)/python -m tests.other_kernels $(TESTS)

## What takes minutes
test-slow: install
	$(BIN)/python -m pytest -m slow

## What needs data outside the repository: DATA=folder with cifar10/ and imagenet_samples/
test-data: install
	$(BIN)/python -m pytest -m data

## The tests of ONNX, whose packages (120 MB) the development environment does not have
test-export: install
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -e '.[export]'
	$(BIN)/python -m pytest tests/exporting tests/examples tests/docs

## Reports and the documentation in a real headless Chromium (Debian: apt-get install chromium)
test-browser: docs
	SSL_HUB_REQUIRE_BROWSER=1 $(BIN)/python -m pytest tests/report/test_browser.py tests/docs/test_phone.py

bench: install
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -e '.[bench]'
	$(BIN)/python -m benchmarks $(if $(DATA),--data $(DATA))

## The paper's qualitative claims on digits, three seeds: an hour or less on two cores
claims: install
	$(BIN)/python benchmarks/digits_table.py --seeds 0 1 2

## The paper's claims on CIFAR-10 in mini, three seeds: DATA=its parquet files; hours, and it goes on where it was stopped
evidence: install
	$(BIN)/ssl-hub reproduce claims --data $(DATA) --scale mini --seeds 3 --jobs 2 --budget-minutes $(MINUTES) --out runs/evidence
	$(BIN)/python benchmarks/evidence.py runs/evidence
	$(BIN)/python docs/hooks.py

## Fifty kill -9 at random moments: every resumed run must end in the same bytes
kills: install
	$(BIN)/python benchmarks/kill_resume.py --kills 50

## Thirty SIGTERMs at random moments to whole runs, one process and two: every resumed run must leave the same files
terms: install
	$(BIN)/python benchmarks/term_resume.py --signals 30

clean:
	rm -rf .venv runs build dist *.egg-info .mypy_cache .ruff_cache .pytest_cache
