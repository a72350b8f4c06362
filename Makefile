# Every target sets up `.venv` first, and does nothing where that is already done.
#   PYTHON=python3.12     which Python makes the environment (3.11 or newer)
#   TORCH_INDEX=URL       package index for torch, say one of the CUDA builds; unset, pip's own
#   LAB_ARGS=--no-browser more arguments for JupyterLab
#   JUDGE_ARGS="2 -v"     arguments for the judge
#   TEST_ARGS=tests/site  arguments for pytest, say the tests to run
#   WORKERS=2             how many processes share the tests (3: those in a browser mostly wait)
#   OFFLINE=1             a site that carries its Python and asks nothing of anyone else
#   PORT=8000             where the site is served
PYTHON ?= python3
TORCH_INDEX ?=
LAB_ARGS ?=
JUDGE_ARGS ?=
TEST_ARGS ?=
WORKERS ?= 3
OFFLINE ?=
PORT ?= 8000

BIN := .venv/bin
STAMP := .venv/.ready$(if $(TORCH_INDEX),-$(firstword $(shell printf '%s' '$(TORCH_INDEX)' | cksum)))
SITE_STAMP := .venv/.site-ready
# torch's own requirements are locked with the rest; these are the packages that depend on the machine.
BY_MACHINE := torch triton cuda-bindings cuda-pathfinder cuda-toolkit nvidia-cublas nvidia-cuda-cupti \
  nvidia-cuda-nvrtc nvidia-cuda-runtime nvidia-cudnn-cu13 nvidia-cufft nvidia-cufile nvidia-curand \
  nvidia-cusolver nvidia-cusparse nvidia-cusparselt-cu13 nvidia-nccl-cu13 nvidia-nvjitlink \
  nvidia-nvshmem-cu13 nvidia-nvtx

.DEFAULT_GOAL := help
.PHONY: help setup lab test judge site serve build check-build check lint lock clean

help: ## list the targets
	@echo "Attention Ledger: make TARGET"
	@awk -F':.*## ' '/^[a-z-]+:.*## / { printf "  %-12s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)
	@sed -n 's/^#   /  /p' $(MAKEFILE_LIST)

setup: $(STAMP) ## make .venv and install the pinned dependencies

$(STAMP): requirements.lock pyproject.toml
	@command -v $(PYTHON) >/dev/null || { \
	  echo "No '$(PYTHON)' was found. Install Python 3.11 or newer, or name one: make $(MAKECMDGOALS) PYTHON=python3.12"; exit 1; }
	@$(PYTHON) -c '' 2>/dev/null || { \
	  echo "'$(PYTHON)' does not run. Name another: make $(MAKECMDGOALS) PYTHON=python3.12"; exit 1; }
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { \
	  echo "The course needs Python 3.11 or newer; '$(PYTHON)' is $$($(PYTHON) -V). Name another: make $(MAKECMDGOALS) PYTHON=python3.12"; exit 1; }
	@$(PYTHON) -c 'import venv, ensurepip' 2>/dev/null || { \
	  echo "'$(PYTHON)' has no venv module. On Debian or Ubuntu: sudo apt install python3-venv"; exit 1; }
	@echo "== Setting up .venv (once; some minutes, and about 2 GB with torch's CPU build)"
	@$(BIN)/python -m pip --version >/dev/null 2>&1 || $(PYTHON) -m venv --clear .venv
	@echo "== 1/2 the locked dependencies"
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --require-hashes -r requirements.lock
	@echo "== 2/2 torch, triton and the course itself"
	$(if $(TORCH_INDEX),@$(BIN)/python -m pip install --quiet --disable-pip-version-check --index-url '$(TORCH_INDEX)' \
	  --force-reinstall --no-deps "$$(sed -n 's/.*"\(torch==[^"]*\)".*/\1/p' pyproject.toml)" || { \
	  echo "torch was not found at TORCH_INDEX=$(TORCH_INDEX)"; exit 1; })
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-build-isolation \
	  $(if $(TORCH_INDEX),--extra-index-url '$(TORCH_INDEX)') --editable '.[torch]'
	@touch $(STAMP)
	@echo "== Ready"

lab: $(STAMP) ## open the course in JupyterLab
	@echo "== Opening JupyterLab on the course (Ctrl-C ends it)"
	@PATH="$(CURDIR)/$(BIN):$$PATH" jupyter lab --config=jupyter_lab_config.py $(LAB_ARGS)

judge: $(STAMP) ## grade what is in practice/
	@$(BIN)/python judge.py $(JUDGE_ARGS) || test $$? -eq 1

$(SITE_STAMP): $(STAMP) requirements-site.lock
	@echo "== Installing what the site is built with (once)"
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --require-hashes -r requirements-site.lock
	@touch $(SITE_STAMP)

site: $(SITE_STAMP) ## build the book and the course in a browser in dist/
	@$(BIN)/python site/build.py $(if $(filter-out 0 no,$(OFFLINE)),--offline)

serve: $(SITE_STAMP) ## serve the built site on this computer
	@$(BIN)/python site/serve.py --port $(PORT)

test: $(SITE_STAMP) ## run all tests, those in a browser too
	@$(BIN)/python tests/chromium.py
	@echo "== Running the tests"
	@$(BIN)/python -m pytest -n $(WORKERS) --dist loadfile --no-loadscope-reorder $(TEST_ARGS)

build: $(STAMP) ## make notebooks/, practice/ and solutions/ from course/
	@$(BIN)/python -m ledger.build

check-build: $(STAMP) ## prove that the committed notebooks are what course/ makes
	@$(BIN)/python -m ledger.build --check

check: $(STAMP) ## the author's gate: references, stubs, mutants, hints
	@$(BIN)/python judge.py check

lint: $(STAMP) ## ruff's checks
	@$(BIN)/ruff check . && $(BIN)/ruff format --check .

LOCK := uv pip compile pyproject.toml --universal --python-version 3.11 --generate-hashes --no-annotate --no-header \
  --quiet --upgrade
lock: ## renew both lock files from pyproject.toml (needs uv)
	@command -v uv >/dev/null || { echo "No 'uv' was found: pip install uv"; exit 1; }
	$(LOCK) --extra lab --extra test --extra torch --extra webgpu -o requirements.lock \
	  $(BY_MACHINE:%=--no-emit-package %)
	$(LOCK) --extra site -c requirements.lock -o requirements-site.lock

clean: ## remove .venv, the site and what its build keeps (answers and progress stay)
	rm -rf .venv dist .cache
