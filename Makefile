# Every task by one word; `make` alone prints this list. Each recipe is also a
# command, `python -m lessons …` or `python -m llamalib …`, for systems without
# make.

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
LLAMALIB = @'$(VENV)/bin/python' -m llamalib
LESSONS = @'$(VENV)/bin/python' -m lessons
# Make expands what it exports: a prompt with $(shell …) would be run. And it
# hands its variables on a second time: a long prompt would not fit.
unexport LLAMA_PROMPT PROMPT MAKEFLAGS MAKEOVERRIDES

.DEFAULT_GOAL := help
.PHONY: help run lab course site test test-slow test-browser notebooks \
  pocket bench bench-gpu weights verify clean

help: ## print this list
	@sed -n 's/^\([a-z-]*\):.*## \(.*\)/make \1|\2/p' $(MAKEFILE_LIST) \
	  | awk -F'|' '{printf "%-18s %s\n", $$1, $$2}'

# `value` keeps a dollar sign in a prompt.
run: export LLAMA_PROMPT := $(value PROMPT)
run: $(VENV)/base.done ## continue a prompt: make run PROMPT="…"
	$(LLAMALIB) run

lab: $(VENV)/base.done ## open the series in JupyterLab, in your own copy
	$(LESSONS) lab --work '$(WORK)' -- $(LAB_FLAGS)

course: $(VENV)/base.done ## write the assignments of a course, for students and teachers
	$(LESSONS) course

test: $(VENV)/dev.done ## run all tests, then compare all notebooks' outputs
	$(LESSONS) test

test-slow: $(VENV)/dev.done ## run the tests that need gigabytes or minutes
	$(LESSONS) test-slow

test-browser: $(VENV)/browser.done $(VENV)/site.done ## test the widgets and the site in headless Chromium
	$(LESSONS) test-browser

notebooks: $(VENV)/dev.done ## execute all notebooks in place
	$(LESSONS) notebooks

pocket: $(VENV)/dev.done ## train the pocket Llama from scratch
	$(LESSONS) pocket

site: $(VENV)/site.done ## build the site of the series into build/site
	$(LESSONS) site

bench: $(VENV)/bench.done ## measure the speed on the CPU, compared with other libraries
	$(LESSONS) bench

bench-gpu: $(VENV)/bench.done ## measure the speed on a CUDA GPU
	$(LESSONS) bench-gpu

weights: $(VENV)/base.done ## download the real Llama 3.2-1B
	$(LLAMALIB) fetch meta-llama/Llama-3.2-1B

verify: $(VENV)/base.done ## compare a checkpoint with what was published: make verify FOLDER=…
	$(LLAMALIB) verify $(if $(FOLDER),'$(FOLDER)')

ENVIRONMENT = @$(PYTHON) -I .ci/environment.py '$(VENV)'
clean: ## remove the virtual environment and what was built
	$(ENVIRONMENT) clean

# Installed once, and again when the lists of packages change.
$(VENV)/%.done: pyproject.toml constraints.txt
	$(ENVIRONMENT) $*

$(VENV)/dev.done $(VENV)/site.done: | $(VENV)/base.done
$(VENV)/browser.done $(VENV)/bench.done: | $(VENV)/dev.done
