#!/bin/sh
# SPDX-License-Identifier: MIT
# Every way in which data files can be missing or damaged: the exact message, and the exit code (65
# for bad data, 66 for missing data, 74 if the system cannot read it).
# shellcheck disable=SC1091,SC2034,SC2154 # expect.sh sets and reads the shared variables
. "$(dirname "$0")/expect.sh"

# Prints the four bytes of a big-endian number below 2²⁴.
number() {
    # shellcheck disable=SC2059 # the format is the octal escapes themselves
    printf "\\000\\$(printf %03o $(($1 / 65536)))\\$(printf %03o $(($1 / 256 % 256)))\\$(printf %03o $(($1 % 256)))"
}

# images FILE COUNT: writes COUNT black images. labels FILE COUNT: writes COUNT labels of class 0.
images() {
    { printf '\000\000\010\003'; number "$2"; number 28; number 28; head -c $(($2 * 784)) /dev/zero; } >"$1"
}
labels() {
    { printf '\000\000\010\001'; number "$2"; head -c "$2" /dev/zero; } >"$1"
}

good_data() {
    rm -rf data
    mkdir data
    images data/train-images-idx3-ubyte 96
    labels data/train-labels-idx1-ubyte 96
    images data/t10k-images-idx3-ubyte 32
    labels data/t10k-labels-idx1-ubyte 32
}

on_data() {
    run config.json --set data.name="${name:-mnist}" --set data.path=data --set data.limit=0
}

# expect_bad CODE MESSAGE
expect_bad() {
    on_data
    expect_code "$1"
    expect_error "$2"
    [ ! -s stdout.txt ] || fail 'expected nothing on stdout'
}

# ---- good data, plain and compressed ----
good_data
on_data
expect_code 0
expect_last_stdout_line 'test acc: [01]\.[0-9][0-9], [0-9]*\.[0-9] sec/epoch on \[ref(0), ref(1)\]'
expect_stderr_line '  data        mnist: 96 training and 32 test images of 1×28×28, bytes / 255'
gzip data/*
on_data
expect_code 0

# ---- another payload than the published one: a warning ----
good_data
name=fashion_mnist
on_data
expect_code 0
[ "$(grep -c 'trainer: warning: data/.*-ubyte: ' stderr.txt)" -eq 4 ] ||
    fail 'expected a warning for each file'
name=mnist

# ---- missing ----
rm -rf data
expect_bad 66 "mnist not found; name the directory of the files with --set data.path=DIR, or try \
--set data.name=synthetic; no train-images-idx3-ubyte[.gz] in data"
LOCKSTEP_DATA=$scratch/a XDG_DATA_HOME=$scratch/b \
    "$program" config.json --set data.name=mnist >stdout.txt 2>stderr.txt
code=$?
label='trainer, searching'
expect_code 66
if [ ! -d /usr/share/datasets/mnist ]; then
    expect_error "mnist not found; name the directory of the files with --set data.path=DIR, or try \
--set data.name=synthetic; no train-images-idx3-ubyte[.gz] in $scratch/a, $scratch/b/datasets, \
/usr/share/datasets (each also as DIR/mnist and DIR/MNIST/raw)"
fi
good_data
rm data/t10k-labels-idx1-ubyte
expect_bad 66 "data: no t10k-labels-idx1-ubyte[.gz] beside train-images-idx3-ubyte; the dataset is \
incomplete, fetch it again"

# ---- truncated ----
good_data
gzip data/train-images-idx3-ubyte
size=$(wc -c <data/train-images-idx3-ubyte.gz)
head -c $((size - 20)) data/train-images-idx3-ubyte.gz >half
mv half data/train-images-idx3-ubyte.gz
expect_bad 65 "data/train-images-idx3-ubyte.gz: expected more compressed data, found the end of the \
file at byte $((size - 20)); the gzip file is truncated, fetch it again"
good_data
head -c 5000 data/train-images-idx3-ubyte >half
mv half data/train-images-idx3-ubyte
expect_bad 65 "data/train-images-idx3-ubyte: expected 75264 bytes after the header, by its counts \
from byte 4 on, found a file too small to hold them; fetch it again"
good_data
: >data/train-labels-idx1-ubyte
expect_bad 65 'data/train-labels-idx1-ubyte: expected data, found an empty file; save or fetch it again'

# ---- damaged ----
good_data
{ printf 'oops'; tail -c +5 data/train-images-idx3-ubyte; } >other
mv other data/train-images-idx3-ubyte
expect_bad 65 "data/train-images-idx3-ubyte: expected the IDX number 0x00000803 at byte 0, found \
0x6f6f7073; this is no IDX file of images"
good_data
cp data/train-labels-idx1-ubyte data/train-images-idx3-ubyte
expect_bad 65 "data/train-images-idx3-ubyte: expected IDX images (0x00000803) at byte 0, found labels \
(0x00000801); are the files swapped?"
good_data
labels data/train-labels-idx1-ubyte 95
expect_bad 65 "data/train-labels-idx1-ubyte: expected 96 labels at byte 4, one for each image of \
data/train-images-idx3-ubyte, found 95; the two files do not belong together"
good_data
{ head -c 20 data/train-labels-idx1-ubyte; printf '\012'; tail -c +22 data/train-labels-idx1-ubyte; } >other
mv other data/train-labels-idx1-ubyte
expect_bad 65 "data/train-labels-idx1-ubyte: expected a label from 0 to 9 at byte 20, found 10; \
fetch the file again"
good_data
printf x >>data/train-labels-idx1-ubyte
expect_bad 65 "data/train-labels-idx1-ubyte: expected the end of the data at byte 104, found more; \
fetch the file again"
good_data
printf x >>data/train-labels-idx1-ubyte
gzip data/train-labels-idx1-ubyte
expect_bad 65 "data/train-labels-idx1-ubyte.gz: expected the end of the data at byte 104, found more; \
fetch the file again"
good_data
gzip data/train-labels-idx1-ubyte
size=$(wc -c <data/train-labels-idx1-ubyte.gz)
printf x >>data/train-labels-idx1-ubyte.gz
expect_bad 65 "data/train-labels-idx1-ubyte.gz: expected the end of the file at compressed byte \
$size, found more; fetch the file again"
good_data
images data/train-images-idx3-ubyte 0
expect_bad 65 'data/train-images-idx3-ubyte: expected at least one image at byte 4, found 0'

# ---- unreadable ----
good_data
rm data/train-labels-idx1-ubyte
ln -s train-labels-idx1-ubyte data/train-labels-idx1-ubyte
expect_bad 74 'data/train-labels-idx1-ubyte: cannot be read: Too many levels of symbolic links'
good_data
rm data/train-labels-idx1-ubyte
mkdir data/train-labels-idx1-ubyte
expect_bad 65 'data/train-labels-idx1-ubyte: expected a data file, found a directory; name a file'
if [ "$(id -u)" -ne 0 ]; then
    good_data
    chmod 000 data/train-labels-idx1-ubyte
    expect_bad 74 'data/train-labels-idx1-ubyte: cannot be read: Permission denied'
fi

# ---- more than there is ----
good_data
expect_failure 78 "--set data.limit=97: data.limit: expected at most the 96 training rows of \
data, found 97; 0 means all" \
    config.json --set data.name=mnist --set data.path=data --set data.limit=97

finish
