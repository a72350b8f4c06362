# Every target sets up `.venv` first, and does nothing where that is already done.
#   PYTHON=python3.12     which Python makes the environment (3.11 or newer)
#   TORCH_INDEX=URL       package index for torch, say one of the CUDA builds; unset, pip's own
#   LAB_ARGS=--no-browser more arguments for JupyterLab
#   JUDGE_ARGS="2 -v"     arguments for the judge
PYTHON ?= python3
TORCH_INDEX ?=
LAB_ARGS ?=
JUDGE_ARGS ?=
TEST_ARGS ?=

BIN := .venv/bin
STAMP := .venv/.ready
# torch's own requirements are locked with the rest; these are the packages that depend on the machine.
BY_MACHINE := torch triton cuda-bindings cuda-pathfinder cuda-toolkit nvidia-cublas nvidia-cuda-cupti \
  nvidia-cuda-nvrtc nvidia-cuda-runtime nvidia-cudnn-cu13 nvidia-cufft nvidia-cufile nvidia-curand \
  nvidia-cusolver nvidia-cusparse nvidia-cusparselt-cu13 nvidia-nccl-cu13 nvidia-nvjitlink \
  nvidia-nvshmem-cu13 nvidia-nvtx

.DEFAULT_GOAL := help
.PHONY: help setup lab test judge build check-build check lint lock clean

help: ## list the targets
	@echo "Attention Ledger: make TARGET"
	@awk -F':.*## ' '/^[a-z-]+:.*## / { printf "  %-12s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)
	@sed -n 's/^#   /  /p' $(MAKEFILE_LIST)

setup: $(STAMP) ## make .venv and install the pinned dependencies

$(STAMP): requirements.lock pyproject.toml
	@command -v $(PYTHON) >/dev/null || { \
	  echo "No '$(PYTHON)' was found. Install Python 3.11 or newer, or name one: make $(MAKECMDGOALS) PYTHON=python3.12"; exit 1; }
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { \
	  echo "The course needs Python 3.11 or newer; '$(PYTHON)' is $$($(PYTHON) -V). Name another: make $(MAKECMDGOALS) PYTHON=python3.12"; exit 1; }
	@$(PYTHON) -c 'import venv, ensurepip' 2>/dev/null || { \
	  echo "'$(PYTHON)' has no venv module. On Debian or Ubuntu: sudo apt install python3-venv"; exit 1; }
	@echo "== Setting up .venv (once; some minutes, and about 2 GB with torch's CPU build)"
	@test -x $(BIN)/python || $(PYTHON) -m venv .venv
	@echo "== 1/2 the locked dependencies"
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --require-hashes -r requirements.lock
	@echo "== 2/2 torch, triton and the course itself"
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-build-isolation \
	  $(if $(TORCH_INDEX),--extra-index-url $(TORCH_INDEX)) --editable '.[torch]'
	@touch $(STAMP)
	@echo "== Ready"

lab: $(STAMP) ## open the course in JupyterLab
	@echo "== Opening JupyterLab on the course (Ctrl-C ends it)"
	@$(BIN)/jupyter lab --config=jupyter_lab_config.py $(LAB_ARGS)

judge: $(STAMP) ## grade what is in practice/
	@$(BIN)/python judge.py $(JUDGE_ARGS)

test: $(STAMP) ## run every test, the browser's too
	@$(BIN)/python tests/chromium.py
	@echo "== Running the tests"
	@$(BIN)/python -m pytest $(TEST_ARGS)

build: $(STAMP) ## make notebooks/, practice/ and solutions/ from course/
	@$(BIN)/python -m ledger.build

check-build: $(STAMP) ## prove that the committed notebooks are what course/ makes
	@$(BIN)/python -m ledger.build --check

check: $(STAMP) ## the author's gate: references, stubs, mutants, hints
	@$(BIN)/python judge.py check

lint: $(STAMP) ## ruff's checks
	@$(BIN)/ruff check . && $(BIN)/ruff format --check .

lock: ## renew requirements.lock from pyproject.toml (needs uv)
	@command -v uv >/dev/null || { echo "No 'uv' was found: pip install uv"; exit 1; }
	uv pip compile pyproject.toml --extra lab --extra test --extra torch --universal --python-version 3.11 \
	  --generate-hashes --no-annotate --no-header --quiet --upgrade -o requirements.lock \
	  $(BY_MACHINE:%=--no-emit-package %)

clean: ## remove .venv (answers and progress stay)
	rm -rf .venv
