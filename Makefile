# `make chat` and `make test` work from a fresh clone and do nothing twice: stamps in .venv remember what is
# installed, and a change of pyproject.toml or constraints.txt makes them stale.

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
SHELL := /bin/bash
.SHELLFLAGS := -eu -o pipefail -c
.DELETE_ON_ERROR:
.DEFAULT_GOAL := help

# llama.cpp is built from source: on one core that takes ten minutes, so use them all.
export CMAKE_BUILD_PARALLEL_LEVEL ?= $(shell getconf _NPROCESSORS_ONLN 2>/dev/null || echo 2)
export PIP_DISABLE_PIP_VERSION_CHECK := 1

.PHONY: help chat test check lock docs clean

help: ## Show what there is to make
	@awk -F ':.*## ' '/^[a-z]+:.*## / {printf "make %-8s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

chat: $(VENV)/.installed ## Install what is needed, then open the chat
	@$(BIN)/mynah

test: check ## Install what is needed, then lint, check types and run every test
	@echo "== tests"
	@$(BIN)/pytest

check: $(VENV)/.installed-test ## Lint, types and import contracts alone
	@echo "== style (ruff)"
	@$(BIN)/ruff check .
	@$(BIN)/ruff format --check .
	@echo "== types (mypy)"
	@$(BIN)/mypy
	@echo "== import contracts"
	@PYTHONPATH=. $(BIN)/lint-imports --cache-dir .cache/import-linter

docs: $(VENV)/.installed-test ## Write docs/commands.md and docs/settings.md from the program's own help
	@$(BIN)/python -m tests.write_commands_page
	@$(BIN)/python -m tests.write_settings_page

lock: $(VENV)/.installed-test ## Write constraints.txt from what is installed
	@{ head -2 constraints.txt; $(BIN)/pip freeze --all --exclude mynah-chat | sed 's/+.*//'; } > $(VENV)/lock
	@mv $(VENV)/lock constraints.txt

clean: ## Remove everything made here; your conversations are elsewhere (mynah locate)
	rm -rf $(VENV) .cache build dist *.egg-info

$(VENV)/.made:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null || { \
	  echo "Mynah needs Python 3.11 or newer, and '$(PYTHON)' is not: name one with 'make PYTHON=python3.12 ...'" >&2; exit 1; }
	@$(PYTHON) -c 'import ensurepip, venv' 2>/dev/null || { \
	  echo "Python's venv module is missing: on Debian and Ubuntu, 'apt install python3-venv'" >&2; exit 1; }
	@echo "== making $(VENV) with $$($(PYTHON) --version)"
	@$(PYTHON) -m venv $(VENV)
	@touch $@

$(VENV)/.installed: $(VENV)/.made pyproject.toml constraints.txt
	@$(call need_compiler)
	@echo "== installing the locked packages (the first time, llama.cpp is built: about five minutes on two cores)"
	@$(BIN)/pip install --constraint constraints.txt --editable .
	@touch $@

$(VENV)/.installed-test: $(VENV)/.made pyproject.toml constraints.txt
	@$(call need_compiler)
	@echo "== installing the locked packages (the first time, llama.cpp is built: about five minutes on two cores)"
	@$(BIN)/pip install --constraint constraints.txt --editable '.[test]'
	@touch $(VENV)/.installed $@

define need_compiler
$(BIN)/python -c 'import llama_cpp' 2>/dev/null || command -v $${CXX:-c++} >/dev/null || { \
  echo "A C++ compiler is needed to build llama.cpp: on Debian and Ubuntu, 'apt install build-essential'" >&2; exit 1; }
endef
