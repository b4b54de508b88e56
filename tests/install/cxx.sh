#!/bin/sh
# SPDX-License-Identifier: MIT
# cxx.sh PREFIX LIBDIR WORK SOURCE: <lockstep/lockstep.hpp> of the installed library, with every C++
# compiler that is there: examples/embed.cpp and embed_learner.cpp, each compiled by the command in
# its first comment, and raii.cpp.
set -eu
prefix=$1 libdir=$2 work=$3 here=$4
command -v pkg-config >/dev/null || {
    echo 'skipped: no pkg-config'
    exit 77
}
export PKG_CONFIG_PATH="$prefix/$libdir/pkgconfig"
strict='-Wall -Wextra -Wpedantic -Wshadow -Wold-style-cast -Werror'
compiled=0
for compiler in g++ clang++; do
    command -v "$compiler" >/dev/null || continue
    compiled=$((compiled + 1))
    rm -rf -- "$work"
    mkdir -p -- "$work"
    cp -- "$prefix/share/doc/lockstep/examples/embed.cpp" \
        "$prefix/share/doc/lockstep/examples/embed_learner.cpp" "$here/raii.cpp" "$work"
    cd -- "$work"
    line=$(sed -n 's|^// *c++ ||p' embed.cpp)
    eval "$compiler $strict $line"
    ./embed >embed.txt
    [ "$(grep -cx -e 'accuracy 0\.9[0-9]' -e 'in the circle: 1.00 and 0.00' embed.txt)" -eq 2 ] || {
        cat embed.txt
        echo "$compiler: embed learnt something else"
        exit 1
    }
    line=$(sed -n 's|^// *c++ ||p' embed_learner.cpp)
    eval "$compiler $strict $line"
    ./learner saved.safetensors 320 >first.txt
    ./learner saved.safetensors 40 >second.txt
    for text in 'first.txt learner_steps_total 100' 'first.txt learner_rate 0.01' \
        'first.txt learner_steps_total 320' 'first.txt learner_rate 0.002' \
        'second.txt learner_steps_total 360' 'second.txt learner_rate 0.002' \
        'second.txt # TYPE learner_predict_seconds histogram'; do
        grep -qx "${text#* }" "${text%% *}" || {
            cat first.txt second.txt
            echo "$compiler: embed_learner: expected $text"
            exit 1
        }
    done
    # More than 0.8 of the positives are caught; the histogram ascends to the count of all predictions.
    awk '$1 == "learner_positives_total" { positives = $2 }
        $1 == "learner_caught_total" { caught = $2 }
        /^learner_predict_seconds_bucket/ { if ($2 < last) exit 1; last = $2; buckets++ }
        $1 == "learner_predict_seconds_sum" { sum = $2 }
        $1 == "learner_predict_seconds_count" { count = $2 }
        END { exit !(caught > 0.8 * positives && sum > 0 && count > 0 && count == last &&
                     buckets == 73) }' second.txt || {
        cat second.txt
        echo "$compiler: embed_learner learnt too little, or its histogram is wrong"
        exit 1
    }
    # Killed in the middle, it goes on from a periodic save.
    rm saved.safetensors
    ./learner saved.safetensors >killed.txt &
    learner=$!
    waited=0
    until grep -qx 'learner_steps_total 400' killed.txt || [ $waited -ge 600 ]; do
        sleep 0.1
        waited=$((waited + 1))
    done
    kill -9 "$learner"
    wait "$learner" || :
    ./learner saved.safetensors 1 >third.txt
    before=$(sed -n 's/^learner_steps_total //p' killed.txt | tail -n 1)
    after=$(sed -n 's/^learner_steps_total //p' third.txt)
    case $((after - ${before:-0})) in
    1 | 101) ;; # the last save may be one that was not printed any more
    *)
        cat third.txt
        echo "$compiler: embed_learner: $after steps after it was killed at ${before:-no step}"
        exit 1
        ;;
    esac
    grep -qx 'learner_rate 0.002' third.txt || {
        cat third.txt
        echo "$compiler: embed_learner: another rate after it was killed"
        exit 1
    }
    cat >other.cpp <<'END'
#include <lockstep/lockstep.hpp>

int status_of_a_missing_file()
{
    try {
        lockstep::model("no such file.safetensors");
    } catch (const lockstep::error &e) {
        return e.status;
    }
    return LS_OK;
}
END
    standard=c++17
    [ "$compiler" = g++ ] || standard=c++20
    # shellcheck disable=SC2046,SC2086 # words on purpose
    "$compiler" -std=$standard $strict raii.cpp other.cpp $(pkg-config --cflags --libs lockstep) -o raii
    ./raii
done
[ "$compiled" -gt 0 ] || {
    echo 'skipped: neither g++ nor clang++ is there'
    exit 77
}
