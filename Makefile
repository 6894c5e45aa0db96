# Every task by one word; `make` alone prints this list.

PYTHON ?= python3
VENV ?= .venv
PROMPT = The capital of France is
BIN := $(VENV)/bin
# Make expands what it exports: a prompt with $(shell …) would be run.
unexport LLAMA_PROMPT PROMPT

.DEFAULT_GOAL := help
.PHONY: help run test test-slow test-browser lab notebooks pocket bench bench-gpu weights verify clean

help: ## print this list
	@sed -n 's/^\([a-z-]*\):.*## \(.*\)/make \1|\2/p' $(MAKEFILE_LIST) \
	  | awk -F'|' '{printf "%-18s %s\n", $$1, $$2}'

# `value` keeps a dollar sign in a prompt.
run: export LLAMA_PROMPT := $(value PROMPT)
run: $(VENV)/base.done ## continue a prompt: make run PROMPT="…"
	@$(BIN)/python -m llamalib run

# The outputs saved in the notebooks are the pocket Llama's.
POCKET := $(CURDIR)/data/pocket-llama
test: export LLAMA_DIR := $(POCKET)
# One file per CPU core, each in one thread: for models as small as the tests'
# this is twice as fast as one file on all cores.
test: export OMP_NUM_THREADS := 1
SPREAD = -n auto --maxprocesses 8 --dist loadfile
test: $(VENV)/dev.done ## run all tests, then compare all notebooks' outputs
	$(BIN)/python -m pytest $(SPREAD) tests
	$(BIN)/python -m pytest $(SPREAD) --nbval notebooks

test-slow: $(VENV)/dev.done ## run the tests that need gigabytes or minutes
	$(BIN)/python -m pytest tests -m slow

test-browser: export LLAMA_DIR := $(POCKET)
test-browser: export OMP_NUM_THREADS := 1
test-browser: $(VENV)/browser.done ## test the widgets in JupyterLab with headless Chromium
	$(BIN)/python -m pytest -n auto --maxprocesses 4 tests -m browser

# JupyterLab refuses to run as root, as in a container, without this flag.
LAB_FLAGS ?= $(shell test "$$(id -u)" != 0 || echo --allow-root)
# Our settings keep the state of widgets in a saved notebook.
LAB_FLAGS += --LabApp.app_settings_dir=$(CURDIR)/llamalib/course/lab
LAB_FLAGS += --LabApp.default_url=/lab/tree/index.ipynb
# The reader's own copy: git ignores it, and `make clean` does not touch it.
WORK ?= work
lab: $(VENV)/base.done ## open the series in JupyterLab, in your own copy
	@test -d $(WORK) || cp -R notebooks $(WORK)
	$(BIN)/jupyter lab --notebook-dir $(WORK) $(LAB_FLAGS)

notebooks: export LLAMA_DIR := $(POCKET)
notebooks: $(VENV)/dev.done ## execute all notebooks in place
	$(BIN)/python -m llamalib execute

pocket: $(VENV)/dev.done ## train the pocket Llama from scratch
	$(BIN)/python data/recipe/make_pocket.py

bench: $(VENV)/bench.done ## measure the speed on the CPU, compared with other libraries
	$(BIN)/python bench/opening.py
	$(BIN)/python bench/generation.py

bench-gpu: $(VENV)/bench.done ## measure the speed on a CUDA GPU
	$(BIN)/python bench/generation.py --device cuda

weights: $(VENV)/base.done ## download the real Llama 3.2-1B
	$(BIN)/python -m llamalib fetch

verify: $(VENV)/base.done ## compare a checkpoint with what was published: make verify FOLDER=…
	@$(BIN)/python -m llamalib verify $(if $(FOLDER),"$(FOLDER)")

clean: ## remove the virtual environment and what was built
	rm -rf $(VENV) data/build

# Installed once, and again when the lists of packages change.
$(VENV)/bin/python:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and \
	  "Python 3.11 or newer is needed: make PYTHON=python3.12 …")'
	@$(PYTHON) -m venv $(VENV) || { rm -rf $(VENV); exit 1; }

$(VENV)/base.done: pyproject.toml constraints.txt | $(VENV)/bin/python
	@echo "installing into $(VENV), once: a minute or more"
	@$(BIN)/python -m pip install --quiet -c constraints.txt -e .
	@touch $@

$(VENV)/dev.done: pyproject.toml constraints.txt | $(VENV)/base.done
	@echo "installing what the tests need, once"
	@$(BIN)/python -m pip install --quiet -c constraints.txt -e '.[dev]'
	@touch $@

$(VENV)/browser.done: pyproject.toml constraints.txt | $(VENV)/dev.done
	@echo "installing what controls a browser, once"
	@$(BIN)/python -m pip install --quiet -c constraints.txt -e '.[browser]'
	@touch $@

# llama-cpp-python compiles llama.cpp for this CPU. If that fails, the other
# libraries are measured, and the next `make bench` tries again.
$(VENV)/bench.done: pyproject.toml constraints.txt | $(VENV)/dev.done
	@echo "installing what is measured, once: llama.cpp compiles for minutes"
	@if $(BIN)/python -m pip install --quiet -c constraints.txt -e '.[bench]'; \
	then touch $@; \
	else echo "llama-cpp-python does not install here: llama.cpp is not" \
	  "measured; the next make bench tries again"; fi
