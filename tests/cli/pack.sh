#!/bin/sh
# SPDX-License-Identifier: MIT
# pack.sh TRAINER: `trainer pack` and the packing of image folders for training. A packed file in
# the cache is used as long as the folder does not change.
# shellcheck disable=SC2015 # fail ends the test, and [ ] && grep are one condition
set -eu
trainer=$1
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
cd "$dir"
export XDG_CACHE_HOME="$dir/cache"

fail() {
    echo "pack.sh: $1" >&2
    cat out err >&2
    exit 1
}

# image PATH GREY: writes an image of 4 × 4 equal pixels.
image() {
    { printf 'P5 4 4 255\n'; for _ in 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16; do printf "%b" "$2"; done; } > "$1"
}

mkdir -p set/cat set/dog
for i in 1 2 3 4 5 6; do image set/cat/$i.pgm '\020'; image set/dog/$i.pgm '\360'; done
echo 'not an image' > set/notes.txt

"$trainer" pack set --to a.safetensors --size 4 --channels 1 --threads 1 > out 2> err || fail "it packs"
"$trainer" pack set --to b.safetensors --size 4 --channels 1 --threads 3 > out 2> err || fail "it packs with threads"
cmp a.safetensors b.safetensors || fail "threads make no difference"
grep -q '12 of 12 images' err || fail "it says how many"
grep -q '1 file is no jpg, png, bmp, webp, pgm or ppm and was left out' err || fail "it says what it left out"
image set/loose.pgm '\020'
"$trainer" pack set --to loose.safetensors --size 4 --channels 1 > out 2> err || fail "it packs beside a loose image"
grep -q '1 file is no jpg' err && grep -q '1 image is beside the folders of the classes and was left out' err ||
    fail "it names an image without a class"
rm set/loose.pgm
# The pixels 16 and 240 have mean 128 and deviation 112; both are divided by 255.
head -c 600 a.safetensors | grep -q '"class_names":"\[\\"cat\\",\\"dog\\"\]","mean":"\[0.5019608\]","std":"\[0.4392157\]"' ||
    fail "metadata: $(head -c 600 a.safetensors)"
# Prints the number of bytes with the names of the files, which are the last ones of a packed file.
names_bytes() {
    head -c 2000 "$1" | tail -c +9 | LC_ALL=C sed -n 's/.*"files":{"dtype":"U8","shape":\[\([0-9]*\)\].*/\1/p'
}

# rows_of FILE BYTES: prints the bytes of images and labels before these names.
rows_of() {
    head -c "-$(names_bytes "$1")" "$1" | tail -c "$2"
}

# The SHA-256 in the metadata is that of all images and labels. The names of the files follow them.
size=$(wc -c < a.safetensors)
names=$(names_bytes a.safetensors)
[ "$(tail -c "$names" a.safetensors | tr '\0' '\n' | sort)" = "$(find set -name '*.pgm' | sort)" ] || fail "names: $(tail -c "$names" a.safetensors | tr '\0' ' ')"
digits=$(rows_of a.safetensors $((12 * 16 + 12 * 4)) | sha256sum | cut -c 1-64)
head -c 200 a.safetensors | grep -q "\"sha256\":\"$digits\"" || fail "the hash is that of the tensors ($size bytes)"

# A broken image is named and counted.
printf 'P5 4 4 255\nshort' > set/cat/7.pgm
rc=0
"$trainer" pack set --to c.safetensors --size 4 --channels 1 > out 2> err || rc=$?
[ $rc = 65 ] && grep -q 'broken: set/cat/7.pgm: offset' err && [ ! -e c.safetensors ] || fail "a broken image ends it"
"$trainer" pack set --to c.safetensors --size 4 --channels 1 --skip-broken > out 2> err || fail "it goes on"
grep -q '1 image is broken and was left out' err || fail "it counts them"
rows_of a.safetensors 240 > a.tail
rows_of c.safetensors 240 | cmp - a.tail || fail "the others are all there"
rm set/cat/7.pgm

# A symbolic link to an image is packed. Directories, pipes, devices and empty files are named as
# broken, and the program does not wait for a pipe.
mkdir -p odd/cat/1.pgm odd/dog && mkfifo odd/cat/2.pgm && mv set/cat/3.pgm c3.pgm && ln -s "$dir/c3.pgm" set/cat/3.pgm
ln -s /dev/zero odd/cat/3.pgm && : > odd/cat/4.pgm
"$trainer" pack set --to c.safetensors --size 4 --channels 1 > out 2> err || fail "it follows links"
cmp a.safetensors c.safetensors || fail "links make no difference"
rm set/cat/3.pgm && mv c3.pgm set/cat/3.pgm
# Files of different sizes, most of which are longer than all files before them.
for i in 5 6 7 8 9; do
    { printf 'P5\n#'; head -c $((i % 3 * 900 + i * 100)) /dev/zero | tr '\0' x; printf '\n'; tail -c +4 set/dog/1.pgm; } > odd/dog/$i.pgm
done
image odd/cat/5.pgm '\020'
"$trainer" pack odd --to o.safetensors --size 4 --channels 1 --skip-broken --threads 1 > out 2> err || fail "it goes on"
grep -q 'broken: odd/cat/1.pgm: expected an image, found a directory' err || fail "a directory"
grep -q 'broken: odd/cat/2.pgm: expected an image, found a device or a pipe' err || fail "a pipe"
grep -q 'broken: odd/cat/3.pgm: expected an image, found a device or a pipe' err || fail "a device"
grep -q 'broken: odd/cat/4.pgm: expected an image, found an empty file' err || fail "an empty file"
grep -q '4 images are broken' err || fail "four are broken"
[ "$(rows_of o.safetensors 120 | head -c 96 | od -An -tu1 -v | tr ' ' '\n' | grep -c 240)" = 80 ] || fail "the others are whole"

# Training packs the folder at the first run only.
cat > config.json <<'END'
{"data": {"name": "folder", "path": "set", "image_size": 4, "channels": 1, "validation": 0.34}, "batch_size": 4, "epochs": 2,
 "model": {"layers": [{"type": "flatten"}, {"type": "dense", "out": 2}]}, "init": {"name": "normal", "std": 0.01}, "optimizer": {"name": "sgd", "lr": 0.1}}
END
"$trainer" config.json --devices ref:1 --set run_dir=one > out 2> err || fail "it trains on a folder"
grep -q packing err || fail "it packs first"
"$trainer" config.json --devices ref:2 --set run_dir=two > out 2> err || fail "it trains again"
grep -q packing err && fail "nothing had changed"
cmp one/weights.safetensors two/weights.safetensors || fail "the same bits"
"$trainer" eval one > out 2> err || fail "it is evaluated"
grep -q 'validation acc: ' out || fail "on what was held out"
sed 's/"folder", "path": "set", "image_size": 4, "channels": 1/"safetensors", "path": "a.safetensors"/' config.json > file.json
"$trainer" file.json --devices ref:1 --set run_dir=three \
    > out 2> err || fail "it trains on the file"
for run in one three; do tail -c 136 $run/weights.safetensors > $run.weights; done
cmp one.weights three.weights || fail "the same rows"
# Different paths of the same folder lead to the same packed file, for all verbs that train.
ln -s set link
for path in ./set link "$dir//set/"; do
    "$trainer" config.json --set "data.path=$path" --devices ref:1 --set run_dir=null > out 2> err || fail "$path"
    grep -q packing err && fail "$path is packed again"
done
"$trainer" sweep config.json --vary data.image_size=4,3 --set devices=ref:1 > out 2> err || fail "a sweep trains on a folder"
[ "$(grep -c 'packing .*12 of 12' err)" = 1 ] || fail "a sweep packs what it has not"
"$trainer" bench config.json --devices ref:1 --rounds 1 --seconds 0.05 > out 2> err || fail "a folder is measured"
grep -q packing err && fail "bench packs again"
touch -d '2001-01-01' set/dog/2.pgm
cp -r set moving
"$trainer" config.json --set data.path=moving --set run_dir=moving-run > out 2> err || fail "it trains on a copy"
"$trainer" eval moving-run > out 2> err || fail "it evaluates"
grep -q 'have changed' err && fail "no image had changed"
image moving/cat/1.pgm '\100'
"$trainer" eval moving-run > out 2> err || fail "it evaluates changed images"
grep -q '^trainer: warning: moving: the data have changed since the run' err || fail "the warning names the folder"
"$trainer" config.json --devices ref:1 --set run_dir=null > out 2> err || fail "it trains on changed files"
grep -q packing err || fail "a file's time had changed"

# Names in Latin-1, which become the same name, are not taken for one class.
latin=$(printf 'latin/caf\351') other=$(printf 'latin/caf\350')
if mkdir -p "$latin" "$other" 2> err; then # some file systems have names in UTF-8 only
    cp set/cat/1.pgm "$latin"
    cp set/dog/1.pgm "$other"
    rc=0
    "$trainer" pack latin --to latin.safetensors --size 4 > out 2> err || rc=$?
    [ $rc = 65 ] && grep -q '^trainer: latin: class .*expected different names' err || fail "two classes of one name"
fi

rc=0
"$trainer" config.json --set data.channels=2 > out 2> err || rc=$?
[ $rc = 78 ] && grep -q 'data.channels=2: data.channels: expected 3 for colours or 1 for grey, found 2' err ||
    fail "an image of two channels"

# Unusual folders: all images are in the only subfolder; there are validation images instead of test
# images, images in a subfolder of their class, a class without images, and folders that archives
# create.
mkdir -p zip/photos/Train/cat/more zip/photos/Train/dog zip/photos/Train/labels zip/photos/valid/cat zip/photos/valid/dog \
    zip/__MACOSX/photos zip/photos/Train/__MACOSX
cp set/cat/1.pgm set/cat/2.pgm zip/photos/Train/cat
cp set/cat/3.pgm zip/photos/Train/cat/more
cp set/dog/1.pgm zip/photos/Train/dog
cp set/dog/1.pgm zip/photos/valid/dog
cp set/cat/1.pgm zip/photos/valid/cat
cp set/cat/1.pgm zip/photos/Train/__MACOSX/1.pgm
cp set/cat/1.pgm zip/photos/Train/cat/moving.gif
"$trainer" pack zip --to z.safetensors --size 4 --channels 1 > out 2> err || fail "it packs what a zip file had"
for line in 'all images lie in its only folder, photos' 'the folder Train is the training images, valid the test images' \
    '1 sub-folder has no images and is no class: labels' "1 image lies in a folder of its class's folder, and is of it" \
    '1 file is an image of a kind that is not read (gif) and was left out; convert it'; do
    grep -qF "trainer: $line" err || fail "it says: $line"
done
head -c 700 z.safetensors | grep -q '"class_names":"\[\\"cat\\",\\"dog\\"\]"' || fail "two classes"
head -c 2000 z.safetensors | grep -q '"x":{"dtype":"U8","shape":\[4,1,4,4\].*"test_x":{"dtype":"U8","shape":\[2,1,4,4\]' ||
    fail "four images and two"
# Test images without subfolders for classes are not used. A folder `train` that contains classes is
# not taken as a class.
mkdir -p kaggle/train kaggle/test && cp -r set/cat set/dog kaggle/train && cp set/cat/1.pgm kaggle/test
"$trainer" pack kaggle --to k.safetensors --size 4 --channels 1 > out 2> err || fail "it packs what a contest had"
grep -q 'the folder train is the training images; others beside them are not used' err || fail "it says what it does not use"
cmp k.safetensors a.safetensors > /dev/null && fail "the remark is kept"
rows_of k.safetensors 240 > k.tail && cmp k.tail a.tail || fail "the same images"
# Two folders whose names are the same text in different Unicode normal forms are one class.
mkdir -p form/train form/test
for split in train test; do mkdir "form/$split/dog" && cp set/dog/1.pgm "form/$split/dog"; done
mkdir "form/train/$(printf 'caf\303\251')" "form/test/$(printf 'cafe\314\201')"
for folder in form/*/caf*; do cp set/cat/1.pgm "$folder"; done
"$trainer" pack form --to f.safetensors --size 4 --channels 1 > out 2> err || fail "an accent in two forms"
# With data.skip_broken, broken images are left out, and each run prints their number.
printf 'P5 4 4 255\nshort' > set/cat/7.pgm
rc=0
"$trainer" config.json --devices ref:1 --set run_dir=null > out 2> err || rc=$?
[ $rc = 65 ] && grep -q "leave them out: data.skip_broken, of .$trainer pack. --skip-broken$" err ||
    fail "a broken image ends a run, with the cure"
rc=0
env -u XDG_CACHE_HOME -u HOME "$trainer" config.json --devices ref:1 --set run_dir=null > out 2> err || rc=$?
[ $rc = 66 ] && grep -q "no place for a cache: .* or pack set with .$trainer pack.$" err || fail "no place, with the cure"
for run in packs 'does not pack'; do
    "$trainer" config.json --devices ref:1 --set run_dir=null --set data.skip_broken=true > out 2> err || fail "it $run"
    grep -q '1 image is broken and was left out' err || fail "a run that $run says so"
done
# If one of several pictures is broken, it is named, the others are predicted, and the exit status
# is 65. With --skip-broken or data.skip_broken it is left out.
rc=0
"$trainer" predict one set > out 2> err || rc=$?
[ $rc = 65 ] && [ "$(wc -l < out)" = 12 ] && grep -q '^trainer: broken: set/cat/7.pgm: offset' err &&
    grep -q '^trainer: set: 1 of 13 pictures is broken and has no prediction; .*: --skip-broken$' err ||
    fail "a broken picture among others"
rc=0
"$trainer" predict one set --json > out 2> err || rc=$?
[ $rc = 65 ] && [ "$(grep -c '"class":' out)" = 12 ] && grep -q '^{"file":"set/cat/7.pgm","error":"set/cat/7.pgm: offset' out ||
    fail "a broken picture as JSON"
rc=0
"$trainer" predict one set --to new.csv > out 2> err || rc=$?
[ $rc = 65 ] && [ "$(grep -c '^set/.*,[a-z]' new.csv)" = 12 ] && grep -qx 'set/cat/7.pgm,,,' new.csv ||
    fail "a broken picture has a row with empty fields"
grep -qx 'trainer: new.csv: 12 pictures predicted with one/.*' err ||
    fail "it says how many of them are predicted"
rc=0
"$trainer" predict one set --to new.jsonl > out 2> err || rc=$?
[ $rc = 65 ] && grep -q '^{"file":"set/cat/7.pgm","error":' new.jsonl || fail "a broken picture has a line"
for skip in --skip-broken '--set data.skip_broken=true'; do
    [ "$skip" = --skip-broken ] && to=new.csv || to=new.jsonl
    # shellcheck disable=SC2086
    "$trainer" predict one set --to $to $skip > out 2> err || fail "it is left out"
    grep -q 'cat/7' "$to" && fail "it is left out of $to"
    grep -qx 'trainer: 1 of 13 pictures is broken and was left out' err || fail "it is counted"
done
# The message names the picture, and not the folder that is another argument.
mv set/cat/7.pgm bad.pgm && rc=0
"$trainer" predict one set bad.pgm > out 2> err || rc=$?
[ $rc = 65 ] && grep -qx 'trainer: 1 of 13 pictures is broken and has no prediction: bad.pgm; mend or remove it, or leave it out: --skip-broken' err ||
    fail "a broken picture beside a folder"
cp bad.pgm worse.pgm && rc=0
"$trainer" predict one set bad.pgm worse.pgm > out 2> err || rc=$?
[ $rc = 65 ] && grep -q '^trainer: 2 of 14 pictures are broken and have no prediction, the first is bad.pgm; mend' err || fail "two of them"
rc=0
"$trainer" predict one bad.pgm worse.pgm > out 2> err || rc=$?
[ $rc = 65 ] && grep -qx 'trainer: none of 2 pictures can be read; the first is bad.pgm' err || fail "none can be read"
mv bad.pgm set/cat/7.pgm
for files in set/cat/7.pgm 'set/cat/7.pgm nowhere.pgm'; do
    rc=0
    # shellcheck disable=SC2086
    "$trainer" predict one/weights.safetensors $files --skip-broken > out 2> err || rc=$?
    [ $rc = 65 ] && [ ! -s out ] || fail "nothing to predict in $files"
done
rm set/cat/7.pgm
# The cache keeps the packed file that was used last, and removes others if they exceed its limit.
[ "$(find cache/lockstep -name 'data-*.safetensors' | wc -l)" -gt 1 ] || fail "there are several files"
LOCKSTEP_CACHE_GIB=0 "$trainer" config.json --devices ref:1 --set run_dir=null > out 2> err || fail "it trains with a small cache"
[ "$(find cache/lockstep -name 'data-*.safetensors' | wc -l)" = 1 ] || fail "one is left"
grep -q 'was removed' err || fail "it does not say what it removed"

# A folder without subfolders, and test images of a class without training images.
mkdir empty && rc=0
"$trainer" pack empty --to d.safetensors > out 2> err || rc=$?
[ $rc = 65 ] && grep -q 'expected a sub-folder for each class' err || fail "an empty folder"
mkdir flat && image flat/1.pgm '\020' && image flat/2.pgm '\360' && rc=0
"$trainer" init flat > out 2> err || rc=$?
[ $rc = 65 ] && grep -q 'flat: expected a sub-folder with images for each class, found none, but 2 images in the folder itself; put the images of each class into a sub-folder with the name of the class$' err ||
    fail "a folder of images without classes: $(cat err)"
mkdir -p test/bird && image test/bird/1.pgm '\020' && rc=0
"$trainer" pack set --test test --to d.safetensors > out 2> err || rc=$?
[ $rc = 65 ] && grep -q 'test/bird: expected sub-folders of the same names' err || fail "a class that is new"
rc=0
"$trainer" pack set > out 2> err || rc=$?
[ $rc = 64 ] || fail "--to is missing"
