#!/bin/sh
# Makes what the tests need and runs them all; arguments go to pytest, and then only pytest runs.
set -eu
cd "$(dirname "$0")"
./start.sh --setup-only --extras test
python=.venv/bin/python
"$python" -m local_tp models pull starter

if [ $# -gt 0 ]; then
    exec "$python" -m pytest "$@"
fi

failed=
check() {
    echo "== $*"
    "$python" -m "$@" || failed="$failed [$*]"
}
check ruff check .
check ruff format --check .
check mypy
check mypy scripts app.py
# Coverage slows every call down, and most of all the whole line's: its tests run without.
check pytest --ignore tests/whole --cov --cov-report=term:skip-covered
check pytest tests/whole
if [ -n "$failed" ]; then
    echo "test: failed:$failed" >&2
    exit 1
fi
