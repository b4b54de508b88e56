#!/bin/sh
# SPDX-License-Identifier: MIT
# planted_division.sh SCRIPT BUDGETS SOURCE NVCC CUOBJDUMP: checks that a kernel
# with a division exceeds its budget.
script=$1 budgets=$2 source=$3 nvcc=$4 cuobjdump=$5
set -eu
scratch=$(mktemp -d "${TMPDIR:-/tmp}/lockstep-planted.XXXXXX")
trap 'rm -rf "$scratch"' EXIT
mkdir -p "$scratch/cuda/kernels"
cp "$source/kernels.h" "$source/kernels.cuh" "$source/pool.cu" "$scratch/cuda/kernels"
grep -E '^(nvcc|registers|quads|pool)' "$budgets" >"$scratch/budgets"
check() { python3 -B "$script" "$scratch/budgets" --nvcc "$nvcc" --source "$scratch/cuda/kernels" --cuobjdump "$cuobjdump"; }
check && status=0 || status=$?
[ "$status" -eq 0 ] || exit "$status" # 77: the budgets are for another compiler
sed -i 's|return (uint32_t)((uint64_t)n \* by.factor >> by.shift);|return n / by.d;|' "$scratch/cuda/kernels/kernels.cuh"
grep -q 'return n / by.d;' "$scratch/cuda/kernels/kernels.cuh"
if check; then
    echo "a division in every pooling kernel, and the budgets hold"
    exit 1
fi
