#!/bin/sh
# SPDX-License-Identifier: MIT
# python.sh PROBE SCRIPT ARGUMENT...: runs a script with a Python that has PyTorch: $TORCH_PYTHON,
# else python3. Skipped without a GPU or without PyTorch. LOCKSTEP_TEST_DATA is the folder of
# Fashion-MNIST.
probe=$1
shift
"$probe" || exit
python=${TORCH_PYTHON:-python3}
"$python" -c 'import torch' 2>/dev/null || {
    echo "skipped: $python has no PyTorch"
    exit 77
}
exec "$python" -B "$@" ${LOCKSTEP_TEST_DATA:+--data "$LOCKSTEP_TEST_DATA"}
