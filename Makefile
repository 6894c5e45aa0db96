# Every task by one word; `make` alone prints this list. Each recipe is a command
# that README gives for Windows, too.

PYTHON ?= python3
VENV ?= .venv
# For make, a name with a space is two names.
ifneq ($(words $(VENV)),1)
  $(error VENV is "$(VENV)": name a folder without spaces, as in VENV=.venv)
endif
# Your copy of the notebooks, and flags for JupyterLab, as in --no-browser.
WORK ?= work
LAB_FLAGS ?=
PROMPT = The capital of France is
PY = @'$(VENV)/bin/python'
# A process per core, each with whole files: `make test SPREAD=` uses one.
SPREAD = -n auto --maxprocesses 8 --dist loadfile
PYTEST = $(PY) -m pytest
FILES =
# A real English model, and Llama 3's tokenizer.
SMOLLM2 = data/SmolLM2-135M-Instruct/SmolLM2-135M-Instruct.Q4_1.gguf
LLAMA3 = data/Llama-3-tokenizer/tokenizer.model
# Make expands what it exports: a prompt with $(shell …) would be run. And it
# hands its variables on a second time: a long prompt would not fit.
unexport LLAMA_PROMPT PROMPT FOLDER MAKEFLAGS MAKEOVERRIDES

.DEFAULT_GOAL := help
.PHONY: help run chat lab course site picture test test-slow test-browser notebooks \
  scripts pocket bench bench-gpu weights verify format lock clean

help: ## print this list
	@sed -n 's/^\([a-z-]*\):.*## \(.*\)/make \1|\2/p' $(MAKEFILE_LIST) \
	  | awk -F'|' '{printf "%-18s %s\n", $$1, $$2}'

# `value` keeps a dollar sign in a prompt, or in a folder's name.
ifneq ($(value FOLDER),)
run chat verify: export LLAMA_DIR := $(value FOLDER)
endif
run: export LLAMA_PROMPT := $(value PROMPT)
run: $(VENV)/base.done $(SMOLLM2) ## continue a prompt: make run PROMPT="…" FOLDER=…
	$(PY) -m llamalib run

chat: $(VENV)/base.done $(SMOLLM2) ## talk with a model: make chat FOLDER=…
	$(PY) -m llamalib chat

lab: $(VENV)/base.done $(SMOLLM2) $(LLAMA3) ## open the series in JupyterLab, in your own copy: make lab LAB_FLAGS=--no-browser
	$(PY) -m tools lab --work '$(WORK)' -- $(LAB_FLAGS)

course: $(VENV)/base.done ## write the assignments of a course, for students and teachers
	$(PY) -m tools course

test: $(VENV)/dev.done $(SMOLLM2) $(LLAMA3) ## run all tests, then compare all notebooks' outputs
	$(PYTEST) $(SPREAD) tests
	$(PYTEST) $(SPREAD) --nbval notebooks

test-slow: $(VENV)/dev.done ## run the tests that need gigabytes or minutes
	$(PYTEST) -m slow tests

test-browser: $(VENV)/browser.done $(VENV)/site.done $(SMOLLM2) ## test the widgets and the site in headless Chromium
	$(PYTEST) $(SPREAD) -m browser tests

notebooks: $(VENV)/dev.done $(SMOLLM2) ## execute all notebooks in place: make notebooks FILES=…
	$(PY) -m tools execute $(FILES)

format: $(VENV)/dev.done ## check the form of all code, cells too, by ruff, and llamalib's types
	$(PY) -m ruff check .
	$(PY) -m ruff format --check .
	$(PY) -m mypy

scripts: site/node_modules ## check the form and the types of the site's scripts, by Node
	@cd site && npm run --silent check

pocket: $(VENV)/dev.done ## train the pocket Llama from scratch
	$(PY) data/recipe/make_pocket.py

site: $(VENV)/site.done $(SMOLLM2) ## build the site of the series into build/site
	$(PY) site/build.py

picture: $(VENV)/browser.done ## draw the README's pictures of the explorer, in headless Chromium
	$(PY) .ci/front.py

bench: $(VENV)/bench.done ## measure the speed on the CPU, compared with other libraries
	$(PY) bench/generation.py
	$(PY) bench/generation.py --smollm2

bench-gpu: $(VENV)/bench.done ## measure the speed on a CUDA GPU
	$(PY) bench/generation.py --device cuda

weights: $(VENV)/base.done ## download the real Llama 3.2-1B
	$(PY) -m llamalib fetch meta-llama/Llama-3.2-1B

verify: $(VENV)/base.done ## compare a checkpoint with what was published: make verify FOLDER=…
	$(PY) -m llamalib verify

# Versions stay as long as they fit; UPGRADE=--upgrade takes the newest.
UPGRADE ?=
UV = uv pip compile -q --universal --python-version 3.11 --no-annotate \
  --custom-compile-command 'make lock' $(UPGRADE)
HASHED = $(UV) -c constraints.txt --generate-hashes
lock: $(VENV)/lock.done ## write the versions and hashes of what is installed: make lock UPGRADE=--upgrade
	$(PY) -m $(UV) --all-extras pyproject.toml -o constraints.txt
	@echo torch | $(PY:@%=%) -m $(HASHED) - -o locked-torch.txt
	$(PY) -m $(HASHED) pyproject.toml -o locked.txt $$(grep -oE \
	  '^(torch|triton|cuda-|nvidia-)[^= ]*' locked-torch.txt \
	  | sed 's/^/--no-emit-package /')

clean: ## remove .venv and what was built, but not work/ or build/course
	rm -rf .venv data/build build/site

# Downloaded once. Without a network the rest goes on, but not in CI.
$(SMOLLM2) $(LLAMA3): | $(VENV)/base.done
	$(PY) -m llamalib fetch $(notdir $(@D)) || [ "$$CI" != true ]

# Only for who works on the scripts: the site needs Python alone.
site/node_modules: site/package.json site/package-lock.json
	@cd site && npm ci --silent --no-audit --no-fund && touch node_modules

# Installed once; again when the lists of packages change, or when PYTHON=… is
# of another version. An old Python, too, understands these two lines. For 3.15
# torch and numpy have no builds yet.
FITS = import sys; sys.exit(not (3, 11) <= sys.version_info < (3, 15))
VERSION = import sys; print("%d.%d.%d" % sys.version_info[:3])
ifneq ($(origin PYTHON),file)
  ifneq ($(shell $(PYTHON) -c '$(VERSION)' 2>/dev/null),$(shell \
    '$(VENV)/bin/python' -c '$(VERSION)' 2>/dev/null))
    ANOTHER = another
  endif
endif
.PHONY: another
another: ;
# If it is too old or half made, .venv is made anew. A folder that you name is
# never emptied.
KEEP = [ -z '$(ANOTHER)' ] && '$(VENV)/bin/python' -c 'import pip; $(FITS)' \
  2>/dev/null
PIP = $(PY) -m pip install --no-compile
# What is in base comes from PyPI by the hashes of `make lock`; torch, too, but
# if pip is told of another build, whose version has a plus, such as +cpu. What
# is never imported is never compiled: that saves half a minute.
TORCH ?=
CPU = --no-deps --index-url https://download.pytorch.org/whl/cpu
PYPIS_TORCH = $(PIP:@%=%) -q -c constraints.txt --no-deps --dry-run --report - \
  torch | grep -q '"version": "[0-9]*\.[0-9.]*"'
LOCKED = locked.txt locked-torch.txt
$(VENV)/base.done: pyproject.toml constraints.txt $(LOCKED) $(ANOTHER)
	@$(KEEP) || $(PYTHON) -c '$(FITS)' 2>/dev/null || { \
	  found=$$($(PYTHON) -c '$(VERSION)' 2>/dev/null); \
	  echo "Python 3.11 to 3.14 is needed, $(PYTHON) is $${found:-not there}:" \
	    "name another, as in make $(MAKECMDGOALS) PYTHON=python3.12" >&2; exit 1; }
	@echo 'installing into $(VENV), once: torch, JupyterLab and others, 300 MB'
	@[ "$$(uname)" != Linux ] || [ '$(TORCH)' ] || echo "on Linux with NVIDIA's" \
	  'libraries, 2.8 GB; without: make $(MAKECMDGOALS) TORCH=cpu'
	@$(KEEP) || $(PYTHON) -m venv $(if $(filter .venv,$(VENV)),--clear) '$(VENV)'
	@'$(VENV)/bin/python' -c '$(FITS)' || { \
	  echo '$(VENV) is of another Python: name another folder' >&2; exit 1; }
	$(if $(filter cpu,$(TORCH)),$(PIP) -c constraints.txt $(CPU) torch)
	$(PIP) -r locked.txt || { echo 'pip could not install: is there a network? The' \
	  'same command goes on where it stopped' >&2; exit 1; }
	@if $(PYPIS_TORCH); then $(PIP:@%=%) -r locked-torch.txt; \
	  else $(PIP:@%=%) -c constraints.txt torch; fi
	$(PIP) --no-deps --no-build-isolation -e .
	@touch '$@'

EXTRA = $(PIP) -c constraints.txt -e
$(VENV)/dev.done $(VENV)/browser.done $(VENV)/site.done $(VENV)/lock.done: \
  $(VENV)/base.done
	@echo 'installing into $(VENV) what $(@F:.done=) needs, once'
	$(EXTRA) '.[$(@F:.done=)]'
	@touch '$@'

# Without llama.cpp the others are measured, and the next run tries again.
$(VENV)/bench.done: $(VENV)/dev.done
	@echo 'installing llama.cpp into $(VENV), which compiles for minutes'
	$(EXTRA) '.[bench]' && touch '$@' || echo 'llama.cpp is not measured'

$(VENV)/browser.done: | $(VENV)/dev.done
