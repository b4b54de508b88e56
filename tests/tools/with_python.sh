#!/bin/sh
# SPDX-License-Identifier: MIT
# with_python.sh PYTHON SCRIPT ARGUMENT...: runs the script; exits with 77 (skipped) if there is no
# such Python.
python=$1
shift
command -v "$python" >/dev/null || {
    echo "skipped: there is no $python"
    exit 77
}
exec "$python" -B "$@"
