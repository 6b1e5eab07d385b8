#!/usr/bin/env bash
# Checks the shim on this machine's GPUs and prints a table; see run.py.
exec python3 "$(dirname "$0")/run.py" "$@"
