# `make lab` builds the simulated rack and deploys to it; `make test` runs all tests. Everything else serves these two.
SHELL := /bin/bash
BIN := .venv/bin
export PATH := $(CURDIR)/.venv/bin:$(PATH)
.DEFAULT_GOAL := help

.PHONY: help
help: ## Show the targets
	@sed -n 's/^\([a-z0-9-]*\):.*## \(.*\)/\1\t\2/p' $(MAKEFILE_LIST) | expand -t 12

.PHONY: venv
venv: ## Make .venv with everything that development and tests need
	@tests/bootstrap venv

.PHONY: rack
rack: venv ## Build and start the simulated rack
	$(BIN)/python -m tests.lab up

.PHONY: lab
lab: rack ## Build the rack, deploy to it, show the endpoints that answer
	$(BIN)/python -m tests.lab.deploy

.PHONY: lint
lint: venv ## Check style, types, roles and documentation
	tests/lint

.PHONY: unit
unit: venv ## Run the unit tests, those of the host code under Python 3.7 too
	@tests/bootstrap host-python
	$(BIN)/python -m pytest -n 4 tests/unit tests/gallery
	.venv-3.7/bin/python -m pytest -n 4 tests/unit/plugins/module_utils --ignore-glob='*_mutations.py'

.PHONY: bench
bench: venv ## Measure what observing a host costs
	$(BIN)/python -m pytest tests/bench

.PHONY: gallery
gallery: venv ## Plan every host of the gallery, and show the decisions
	$(BIN)/python -m tests.gallery .gallery
	$(BIN)/ansible-playbook playbooks/plan.yml -i .gallery/inventory.yml

.PHONY: molecule
molecule: venv ## Run the molecule scenario on the rack
	$(BIN)/molecule test --all

# Groups that have no host of the rack in common, so that they run side by side; a new file is in the last one.
.PHONY: integration integration-fleet integration-odd integration-host
TESTS := tests/integration/test_
FLEET := $(addprefix $(TESTS),site.py quoting.py verify.py documentation.py real_engine_310p.py offline_310p.py build_image.py)
ODD := $(addprefix $(TESTS),odd_hosts.py replay.py engine_image.py vllm_image.py diagnose.py offline.py model.py)
integration: integration-fleet integration-odd integration-host ## Run the integration tests on the rack

integration-fleet: venv
	$(BIN)/python -m pytest --durations=5 $(FLEET)

integration-odd: venv
	$(BIN)/python -m pytest --durations=5 $(ODD)

integration-host: venv
	$(BIN)/python -m pytest --durations=5 $(filter-out $(FLEET) $(ODD),$(wildcard $(TESTS)*.py)) tests/lab

.PHONY: test
test: venv ## Run all tests
	tests/run

.PHONY: build
build: venv ## Build the collection archive
	$(BIN)/ansible-galaxy collection build --force

.PHONY: clean
clean: ## Remove the rack, its images and everything that was built
	@if [ -x $(BIN)/python ] && [ -d .lab ]; then $(BIN)/python -m tests.lab clean; fi
	rm -rf .lab .gallery .hypothesis .mypy_cache .pytest_cache .ruff_cache vllm_ascend-fleet-*.tar.gz
