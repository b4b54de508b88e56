#!/bin/sh
# SPDX-License-Identifier: MIT
# beside_torch.sh PYTHON LIBRARY PLUGIN DRIVER PROGRAM ARGUMENT...: runs a Python program that finds
# the library, the plugin beside it, and a library with the name of NVIDIA's driver (in the folder
# DRIVER). PYTHON "LOCKSTEP_TORCH_PYTHON": the one that this environment variable names. Without it,
# or without NumPy, the test is skipped.
set -u
python=$1
library=$2
plugin=$3
driver=$4
shift 4
if [ "$python" = LOCKSTEP_TORCH_PYTHON ]; then
    python=${LOCKSTEP_TORCH_PYTHON-}
    [ -n "$python" ] || {
        echo "skipped: LOCKSTEP_TORCH_PYTHON names no Python"
        exit 77
    }
fi
"$python" -c 'import numpy' 2>/dev/null || {
    echo "skipped: $python has no NumPy"
    exit 77
}
folder=$(mktemp -d "${TMPDIR:-/tmp}/lockstep-beside.XXXXXX") || exit 1
trap 'rm -rf "$folder"' EXIT
ln -s "$library" "$folder/$(objdump -p "$library" | sed -n 's/ *SONAME *//p')"
ln -s "$plugin" "$folder/"
LD_LIBRARY_PATH=$folder:$driver "$python" -B "$@"
