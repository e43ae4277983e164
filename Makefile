# `make demo` and `make test` each work alone on a fresh machine: they make .venv and install what is missing.
PYTHON ?= python3
VENV ?= .venv
BIN = $(VENV)/bin
INSTALLED = $(VENV)/.installed
DEMO = runs/demo
TYPED = build/typed

export TOKENIZERS_PARALLELISM = false
export HF_HUB_OFFLINE = 1
export TRANSFORMERS_VERBOSITY = error

.PHONY: help demo test bench check docs notebooks train clean

help:
	@echo "make demo       explain the shipped memes with the shipped model; score, analyse, draw"
	@echo "make test       the whole test suite"
	@echo "make bench      time and memory against their bars (half an hour; ROWS=\"speed occlusion\" for some of it)"
	@echo "make check      ruff and mypy --strict on the installed package"
	@echo "make docs       build the documentation strictly into site/"
	@echo "make notebooks  run the notebooks and keep their outputs"
	@echo "make train      train such a model from nothing into runs/checkpoint (about an hour on two cores)"

$(INSTALLED): pyproject.toml
	@test -x $(BIN)/python || { echo "making $(VENV)"; $(PYTHON) -m venv $(VENV); }
	@echo "installing xai and what it needs into $(VENV) (minutes the first time)"
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable ".[dev]"
	@touch $@

demo: $(INSTALLED)
	@rm -rf $(DEMO)
	@$(BIN)/xai explain samples --out $(DEMO) --mode text --mode image --mode image+text
	@$(BIN)/xai score $(DEMO)
	@$(BIN)/xai analyze $(DEMO)
	@$(BIN)/xai show $(DEMO) sample-01 --mode image+text --png $(DEMO)/reports/sample-01.png --html $(DEMO)/reports/sample-01.html
	@echo "look at one more: $(BIN)/xai show $(DEMO) sample-02 --mode image+text"

test: $(INSTALLED)
	@OMP_NUM_THREADS=1 $(BIN)/python -m pytest --numprocesses 2 --dist loadfile $(PYTEST_OPTIONS)

bench: $(INSTALLED)
	@$(BIN)/python -m tests.benchmarks $(foreach row,$(ROWS),--row $(row)) $(BENCH_OPTIONS)

# Type checker and documentation read the installed package, since its folders are mapped.
.PHONY: typed
typed: $(INSTALLED)
	@rm -rf build
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps --target $(TYPED) .

check: typed
	@$(BIN)/ruff check .
	@$(BIN)/ruff format --check .
	@MYPYPATH=$(TYPED) $(BIN)/mypy --strict -p xai

docs: typed
	@NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict --quiet
	@echo "documentation in site/index.html"

notebooks: $(INSTALLED)
	@$(BIN)/python notebooks/run.py

train: $(INSTALLED)
	@$(BIN)/python -m xai.planted.train runs/checkpoint

clean:
	rm -rf build dist site runs .pytest_cache .mypy_cache .ruff_cache *.egg-info
