#!/bin/sh
# SPDX-License-Identifier: MIT
# selftest.sh ROOT: plants one violation at a time into a copy of the sources, which floors.sh must
# report; and some code that only looks like a violation, which it must accept.
set -eu
here=$(CDPATH='' cd -- "$(dirname -- "$0")" && pwd)
root=$1
copy=$(mktemp -d)
trap 'rm -rf -- "$copy"' EXIT
trap 'exit 1' HUP INT TERM
cp -R -- "$root/src" "$root/include" "$root/tests" "$copy" # src/README.md names files of all three
failed=0

# The copy starts clean, or what follows shows nothing.
sh "$here/floors.sh" "$copy" || {
    echo "the sources themselves break a rule"
    exit 1
}

# A breach follows from its file and from the headers: without the text of the other files a check takes a third of
# the time.
find "$copy/src" -type f \( -name '*.c' -o -name '*.cu' -o -name '*.inc' \) | while read -r file; do
    : >"$file"
done

# plant FILE LINE: FILE holds LINE while the next check runs.
plant()
{
    mkdir -p -- "$copy/${1%/*}"
    printf '%s\n' "$2" >"$copy/$1"
}

# caught FILE LINE WORDS: the breach is found, and the message names the file and says WORDS.
caught()
{
    plant "$1" "$2"
    if found=$(sh "$here/floors.sh" "$copy"); then
        echo "not caught in $1: $2"
        failed=1
    elif ! printf '%s\n' "$found" | grep -F -- "$1:" | grep -qF -- "$3"; then
        echo "caught in $1, but the message lacks '$3': $found"
        failed=1
    fi
    rm -f -- "$copy/$1"
}

# passes FILE LINE
passes()
{
    plant "$1" "$2"
    if ! sh "$here/floors.sh" "$copy"; then
        echo "wrongly caught in $1: $2"
        failed=1
    fi
    rm -f -- "$copy/$1"
}

# Upward and sideways.
caught src/base/planted.c '#include "sync/ring.h"' 'base must not include sync/'
caught src/sync/planted.h '  #  include "pool/pool.h"' 'sync must not include pool/'
caught src/merge/planted.c '#include "pool/pool.h"' 'merge must not include pool/'
caught src/pool/planted.c '#include "device/device.h"' 'pool must not include device/'
caught src/json/planted.c '#include "hash/hash.h"' 'json must not include hash/'
caught src/json/planted.c '#include "device/device.h"' 'json must not include device/'
caught src/store/planted.c '#include "pool/pool.h"' 'store must not include pool/'
caught src/hash/planted.c '#include "store/durable.h"' 'hash must not include store/'
caught src/formats/planted.c '#include "nn/network.h"' 'formats must not include nn/'
caught src/device/planted.c '#include "json/json.h"' 'device must not include json/'
caught src/cpu/planted.c '#include "nn/network.h"' 'cpu must not include nn/'
caught src/cpu/planted.c '#include "pool/pool.h"' 'cpu must not include pool/'
caught src/cuda/planted.cu '#include "device/device.h"' 'cuda must not include device/'
caught src/cuda/planted.c '#include "comm/comm.h"' 'cuda must not include comm/'
caught src/cuda/comm/planted.c '#include "comm/comm.h"' 'cuda must not include comm/'
caught src/nn/planted.c '#include "data/dataset.h"' 'nn must not include data/'
caught src/data/planted.c '#include "comm/comm.h"' 'data must not include comm/'
caught src/comm/planted.c '#include "nn/network.h"' 'comm must not include nn/'
caught src/nn/planted.def '#include "cpu/cpu_device.h"' 'nn must not include cpu/'
caught src/config/planted.c '#include "records/record.h"' 'config must not include records/'
caught src/records/planted.c '#include "train/trainer.h"' 'records must not include train/'
caught src/engine/planted.c '#include "config/config.h"' 'engine must not include config/'
caught src/engine/planted.c '#include "records/record.h"' 'engine must not include records/'
caught src/train/planted.c '#include "engine/state.h"' 'is for src/engine only'
caught src/checkpoint/planted.c '#include "train/trainer.h"' 'checkpoint must not include train/'
caught src/train/planted.c '#include "cli/main.h"' 'train must not include cli/'
caught src/train/planted.c '#include "cuda/cuda_device.h"' 'train must not include cuda/'

# Verbs call what does their whole work, and nothing below it: neither by an include nor without one.
for header in nn/network.h data/dataset.h data/image.h data/folder.h onnx/onnx.h config/config.h; do
    caught src/cli/planted.c "#include \"$header\"" "a verb must not include \"$header\""
done
caught src/cli/planted.c 'void f(void) { ls_dataset_read(0, 0, 0, 0, 0, 0); }' \
    'a verb must not call ls_dataset_read(), which is declared in "data/dataset.h"'
caught src/cli/planted.h 'static inline int f(void) { return ls_onnx_save (0, 0, 0, 0); }' \
    'a verb must not call ls_onnx_save()'
caught src/cli/planted.c 'int ls_planted(void) { return 0; }' 'names of cli begin with cli_'

# Public headers have floors too.
caught src/base/planted.c '#include <lockstep/pool.h>' 'belongs to pool'
caught src/cuda/planted.cu '#include <lockstep/trainer.h>' 'belongs to train'
caught include/lockstep/planted.h 'int x;' 'no floor'
caught include/lockstep/host.h '#include <lockstep/pool.h>' 'belongs to pool'
cp -- "$root/include/lockstep/host.h" "$copy/include/lockstep/host.h"
caught include/lockstep/version.h '#include "base/host.h"' 'public header'
cp -- "$root/include/lockstep/version.h" "$copy/include/lockstep/version.h"

# Strays.
caught src/base/planted.c '#include "error.h"' 'write the path from src/'
caught src/attic/planted.c 'int x;' 'in no room'
caught src/planted.c 'int x;' 'in no room'

# Libraries stay in their rooms.
caught src/device/planted.c '#include <cuda_runtime.h>' 'src/cuda only'
caught src/device/planted.c '#include <cjson/cJSON.h>' 'src/json only'
caught include/lockstep/version.h '#include <cjson/cJSON.h>' 'src/json only'
cp -- "$root/include/lockstep/version.h" "$copy/include/lockstep/version.h"
caught src/device/planted.c '#ifdef LOCKSTEP_CUDA' 'src/cuda only'
caught src/train/planted.c '#  elif defined(HAVE_NCCL)' 'src/cuda only'

# A library is a guest in its program.
caught src/nn/planted.c 'void f(void) { exit(1); }' 'exit() is for src/cli only'
caught src/nn/planted.c 'void f(void) { if (1) abort (); }' 'abort() is for src/cli only'
caught src/train/planted.c 'void f(void) { printf("hello"); }' 'printf() is for src/cli only'
caught src/train/planted.c 'void f(void) { fprintf(stderr, "x"); }' 'stderr is for src/cli only'
caught src/data/planted.c 'char *f(void) { return getenv("HOME"); }' 'getenv() is for src/cli only'

# What only looks like a breach.
passes src/nn/planted.c '/* exit(1), abort() and #include "cli/main.h" */ int x;'
passes src/nn/planted.c 'const char *x = "call \" exit(1) now"; // printf("no")'
passes src/comm/planted.c 'void f(struct comm *c) { c->abort(c); (*c).exit(c); }'
passes src/comm/planted.c 'int f(char *t) { return snprintf(t, 1, "x") + my_exit(2); }'
passes src/cli/planted.c '#include "model/trained.h"'
passes src/cli/planted.c '#include "config/keys.h"'
passes src/cli/planted.c '#include "json/json.h"'
passes src/cli/planted.c 'void f(void) { ls_trained_open(0, 0, 0); ls_trainer_open(0, 0, 0); }'
passes src/cli/planted.c '/* ls_dataset_read() */ const char *x = "ls_dataset_read()";'
passes src/cli/planted.c 'void f(void) { printf("%s", getenv("HOME")); exit(0); }'
passes src/cuda/planted.cu '#ifdef __CUDA_ARCH__'
passes src/cuda/planted.cu '#include <lockstep/sys/plugin.h>'
passes src/cuda/planted.c '#include "merge/group.h"'
passes src/nn/planted.c '#include <cjson/cJSON.h>'
passes src/train/planted.c '#include "nn/network.h"'
passes src/engine/planted.c '#include "engine/state.h"'
passes src/cuda/comm/planted.c '#include "merge/group.h"'
passes src/cpu/kernels/planted.inc '#include "cpu/wino.h"'

# The map must not name what is gone.
for gone in base/gone.c cuda/comm/gone.c; do
    cp -- "$root/src/README.md" "$copy/src/README.md"
    printf '\140%s\140\n' "$gone" >>"$copy/src/README.md"
    sh "$here/floors.sh" "$copy" >/dev/null && {
        echo "src/$gone, which the map names and which is not there, is not missed"
        failed=1
    }
done
cp -- "$root/src/README.md" "$copy/src/README.md"

exit $failed
