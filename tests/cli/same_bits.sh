#!/bin/sh
# same_bits.sh TRAINER CONFIG SET: with the kernels of an instruction set, which the caller has switched on,
# LeNet ends with the same bits on one, two, three and eight workers.
program=$1
config=$2
set=$3
set -u
"$program" devices | grep -q "^  cpu(0) .*, $set," || {
    echo "the kernels in use are not those of $set:"
    "$program" devices
    exit 1
}

sha() {
    "$program" "$config" --devices "cpu:$1" --quiet --metrics - --set data.name=synthetic \
        --set data.limit=1024 --set epochs=1 --set optimizer.momentum=0.9 --set eval_every=0 \
        --set run_dir=null 2>/dev/null | sed -n 's/.*"weights_sha256":"\([0-9a-f]\{64\}\)".*/\1/p'
}

wanted=$(sha 1)
[ -n "$wanted" ] || {
    echo "expected a hash from one worker"
    exit 1
}
for workers in 2 3 8; do
    found=$(sha "$workers")
    [ "$found" = "$wanted" ] || {
        echo "$workers workers: expected $wanted, found $found"
        exit 1
    }
done
