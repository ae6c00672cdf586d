# make demo   set up, and see the shipped defence at work
# make test   set up, and run every check
# make docs   set up, and build the site into site/
# make coverage   set up, and say how much of carso/ the tests run
# make test-all-pythons   the same with every Python that is found
PYTHON ?= $(shell command -v python3.11 || command -v python3)
VENV := .venv
BIN := $(VENV)/bin

.PHONY: coverage demo docs test test-all-pythons lint clean setup

demo: setup
	$(BIN)/carso demo

docs: setup
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --quiet --strict

test: setup lint
	OMP_NUM_THREADS=1 $(BIN)/pytest -n auto --maxprocesses 4 --dist loadfile \
		--no-loadscope-reorder

# Also what tests run in other processes; not what a killed process or a copy of the package does.
coverage: setup
	$(BIN)/pip install --quiet --disable-pip-version-check -c constraints.txt coverage
	$(BIN)/coverage erase
	OMP_NUM_THREADS=1 $(BIN)/coverage run -m pytest $(TESTS)
	$(BIN)/coverage combine --quiet
	$(BIN)/coverage report --sort cover

# The tests in a folder of its own for each Python that is found. Torch is installed first, by
# itself: a Python that there is no torch for is skipped, and any other fault is one.
PYTHONS ?= 3.11 3.12 3.13
test-all-pythons:
	@for version in $(PYTHONS); do \
		python=$$(command -v python$$version) && $$python -V >/dev/null 2>&1 \
			|| { echo "python$$version: skipped: it is not here"; continue; }; \
		$$python -m venv .venv-$$version || exit 1; \
		.venv-$$version/bin/pip install --quiet --disable-pip-version-check --only-binary :all: \
			-c constraints.txt torch || { echo "python$$version: skipped: no torch for it"; continue; }; \
		$(MAKE) test PYTHON=$$python VENV=.venv-$$version || exit 1; \
	done

lint: setup
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy --strict carso

setup: $(VENV)/.installed

# Made anew when what is to be installed changes; otherwise a second call installs nothing.
$(VENV)/.installed: pyproject.toml constraints.txt requirements-test.txt
	$(PYTHON) -m venv $(VENV)
	$(BIN)/pip install --quiet --disable-pip-version-check -c constraints.txt \
		setuptools -r requirements-test.txt
	$(BIN)/pip install --quiet --disable-pip-version-check -c constraints.txt \
		--no-build-isolation --editable .
	touch $@

clean:
	rm -rf $(VENV) .venv-3.* site build *.egg-info demo .mypy_cache .ruff_cache .pytest_cache
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
