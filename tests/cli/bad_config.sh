#!/bin/sh
# SPDX-License-Identifier: MIT
# Every way in which a config can be wrong: the exact message, and exit code 78 (66 if a file is
# missing, 64 if an argument is wrong).
# shellcheck disable=SC1091,SC2154 # expect.sh lies beside this script, and sets the program
. "$(dirname "$0")/expect.sh"

# expect_bad_text TEXT MESSAGE: a config with exactly this text fails with the message.
expect_bad_text() {
    printf '%s' "$1" >bad.json
    expect_failure 78 "$2" bad.json
}

# expect_bad SED MESSAGE: the small config, edited by sed, fails with the message.
expect_bad() {
    sed "$1" config.json >bad.json
    expect_failure 78 "$2" bad.json
}

# expect_bad_set ASSIGNMENT MESSAGE: the small config with --set ASSIGNMENT fails with the message.
expect_bad_set() {
    expect_failure 78 "--set $1: $2" config.json --set "$1"
}

# ---- not JSON ----
expect_bad_text 'epochs: 10' \
    "bad.json:1:1: expected a value, found epochs; put strings in double quotes"
expect_bad_text '{"epochs": 10' \
    "bad.json:1:14: expected '}' for the '{' at 1:1, found the end of the text; is the file complete?"
expect_bad_text '{"epochs": 10,}' \
    "bad.json:1:15: expected a key, found '}'; remove the comma before it"
expect_bad_text '{"epochs": 10} x' \
    "bad.json:1:16: expected the end of the text, found 'x'; remove what follows the first value"
expect_bad_text '{"name": "unfinished' "bad.json:1:10: this string has no closing quote"
expect_bad_text '{"epochs": 010}' "bad.json:1:12: expected a number, found a leading zero; remove it"
expect_bad_text '// hello' "bad.json:1:1: expected JSON, found '/'; JSON has no comments, remove it"
expect_bad_text '[1, 2]' "bad.json:1:1: the config: expected an object {…}, found an array"

# ---- what JSON allows and a config does not ----
expect_bad 's/"epochs": 1,/"epochs": 1, "epochs": 2,/' \
    'bad.json:14:16: expected each key once, found "epochs" again (first at 14:3); remove one of the two'
expect_bad 's/"lr": 0.05/"lr": NaN/' \
    'bad.json:17:38: expected a value, found NaN; numbers must be finite'
expect_bad 's/"lr": 0.05/"lr": -inf/' \
    'bad.json:17:38: expected a number, found -inf; numbers must be finite'
expect_bad 's/"lr": 0.05/"lr": 1e999/' \
    'bad.json:17:38: expected a finite number, found 1e999; the largest is 1.797e308'
printf '{"name": "\377"}' >bad.json
expect_failure 78 'bad.json:1:11: expected UTF-8, found the byte 0xff; save the file as UTF-8' bad.json
printf '\357\273\277{}' >bad.json
expect_failure 78 'bad.json:1:1: expected JSON, found a byte order mark; save the file without one' \
    bad.json
head -c 10000000 /dev/zero | tr '\0' '[' >bad.json
expect_failure 78 'bad.json:1:65: expected at most 64 nested arrays and objects, found more' \
    bad.json
head -c 20000000 /dev/zero | tr '\0' ' ' >bad.json
expect_failure 78 'bad.json: expected a JSON file of at most 16777216 bytes, found 20000000' bad.json

# ---- not a file ----
: >bad.json
expect_failure 78 'bad.json: expected a JSON file, found an empty file' bad.json
mkdir directory
expect_failure 78 "directory: expected a config, found data; write one and train: \`$program init directory --to my.json --train\`" directory
expect_failure 78 \
    '/dev/null: expected a JSON file, found a device or a pipe; copy it to a file first' /dev/null
expect_failure 66 'missing.json: no such file' missing.json
ln -s loop.json loop.json
expect_failure 74 'loop.json: cannot be read: Too many levels of symbolic links' loop.json
if [ "$(id -u)" -ne 0 ]; then
    cp config.json secret.json
    chmod 000 secret.json
    expect_failure 74 'secret.json: cannot be read: Permission denied' secret.json
fi

# ---- keys ----
expect_bad 's/"batch_size"/"batchsize"/' \
    'bad.json:12:3: the config: unknown key "batchsize"; did you mean "batch_size"?'
expect_bad 's/"limit"/"limits"/' \
    'bad.json:3:33: data: unknown key "limits"; did you mean "limit"?'
sed 's/"lr"/"learning_rate"/' config.json >bad.json
run bad.json
expect_code 78
expect_stderr_line 'trainer: bad.json:17:32: optimizer: unknown key "learning_rate"; known keys: name, lr, .*'
expect_bad '/"optimizer"/d; s/"xavier"},/"xavier"},/' \
    'bad.json: expected a member "optimizer", such as {"name": "sgd", "lr": 0.2}'
expect_bad 's/, "lr": 0.05//' 'bad.json:17:16: optimizer: "lr" is missing; add it'
expect_bad_text '{"optimizer": {"lr": 1}}' \
    'bad.json: expected a member "model": an object with "layers", or the path of a file that holds one'

# ---- types and sizes ----
expect_bad 's/"epochs": 1/"epochs": "many"/' \
    'bad.json:14:13: the config: "epochs" must be an integer from 1 to 1000000, found "many"'
expect_bad 's/"epochs": 1/"epochs": 1.5/' \
    'bad.json:14:13: the config: "epochs" must be an integer from 1 to 1000000, found 1.5'
expect_bad 's/"batch_size": 64/"batch_size": 0/' \
    'bad.json:12:17: the config: "batch_size" must be an integer from 1 to 1048576, found 0'
expect_bad 's/"batch_size": 64/"batch_size": -3/' \
    'bad.json:12:17: the config: "batch_size" must be an integer from 1 to 1048576, found -3'
expect_bad 's/"batch_size": 64/"batch_size": 1e300/' \
    'bad.json:12:17: the config: "batch_size" must be an integer from 1 to 1048576, found 1e+300'
expect_bad 's/"name": "small"/"name": 7/' \
    'bad.json:2:11: the config: "name" must be a string, found 7'
expect_bad 's/"name": "small"/"name": "a\/b"/' \
    "bad.json:2:11: the config: name: expected a word without '/', which becomes part of a file name"
expect_bad_set epochs=0 'the config: "epochs" must be an integer from 1 to 1000000, found 0'
expect_bad_set shards=0 'the config: "shards" must be an integer from 1 to 65536, found 0'
expect_bad_set shards=70000 'the config: "shards" must be an integer from 1 to 65536, found 70000'
expect_bad_set shards=device \
    'the config: shards: expected an integer or "devices", found "device"'
expect_bad_set threads=-1 'the config: "threads" must be an integer from 0 to 1024, found -1'
expect_bad_set seed=1.5 'the config: seed: expected an integer, found 1.5'
expect_bad_set seed=-1 'the config: "seed" must be a number from 0 to 9.0072e+15, found -1'
expect_bad_set eval_every=-1 \
    'the config: "eval_every" must be an integer from 0 to 1000000, found -1'
expect_bad_set checkpoint=7 'checkpoint: expected an object {…}, found a number'
expect_bad_set checkpoint.keep=0 'checkpoint: "keep" must be an integer from 1 to 1000000, found 0'
expect_bad_set checkpoint.evry_steps=1 \
    'checkpoint: unknown key "evry_steps"; did you mean "every_steps"?'
expect_bad_set deadline_s=-1 'the config: "deadline_s" must be a number from 0 to 86400, found -1'
expect_bad_set on_device_loss=go \
    'the config: unknown on_device_loss "go"; expected one of: continue, stop'
expect_bad_set loss=quantiles 'the config: unknown loss "quantiles"; did you mean "quantile"?'
expect_bad_set schedule=cosin 'schedule: unknown name "cosin"; did you mean "cosine"?'
expect_bad_set on_nonfinite=skp 'the config: unknown on_nonfinite "skp"; did you mean "skip"?'
expect_bad_set verify_every_steps=-1 \
    'the config: "verify_every_steps" must be an integer from 0 to 2147483647, found -1'
run config.json --set allreduce=nccl
expect_code 78
case $(tail -n 1 stderr.txt) in
"trainer: --set allreduce=nccl: ref(0) does not have 'nccl'; use one of ordered, naive"*) ;;
*) fail 'expected the communicators of the device' ;;
esac
expect_bad_set precision=fp23 'the config: unknown precision "fp23"; did you mean "fp32"?'
expect_bad_set optimizer.lr=-0.1 'optimizer: "lr" must be a number from 0 to 1000000, found -0.1'
expect_bad_set optimizer.lr=nan 'optimizer: "lr" must be a number from 0 to 1000000, found "nan"'
expect_bad_set optimizer.momentum=1 \
    'optimizer: "momentum" must be less than 1: old gradients would never fade'
expect_bad_set optimizer=3 'optimizer: expected an object {…}, found a number'
expect_bad_set gradient_scale=bach 'the config: unknown gradient_scale "bach"; did you mean "batch"?'
expect_bad_set allreduce=ordred "ref(0) does not have 'ordred'; did you mean 'ordered'?"
expect_bad_set init.name=normall 'init: unknown name "normall"; did you mean "normal"?'
expect_bad_set data=7 'data: expected an object {…}, found a number'
expect_bad_set data.name=syntetic 'data.name: unknown dataset "syntetic"; did you mean "synthetic"?'
expect_bad_set data.limit=-1 'data: "limit" must be an integer from 0 to 2147483647, found -1'
expect_bad_set data.limit=1000001 \
    'data.limit: expected at most 1000000 synthetic rows, found 1000001; 0 means 6000'
touch a_file
expect_failure 78 "--set data.path=a_file: data.path: expected a directory, found the file a_file; \
name the directory it is in" config.json --set data.name=mnist --set data.path=a_file

# A key that the selected kind of data does not have is refused, with its position. A key that is
# set to its default is accepted.
for key in x=a y=a test_x=a test_y=a test_path=a target=a categorical=a drop=a standardize=true clip=10 standardize_target=true labels=values \
    classes=3 missing=zero packed=a image_size=33 channels=1 \
    pictures=imagenet; do
    run config.json --set data.name=synthetic --set "data.$key"
    expect_code 78
    grep -q "^trainer: --set data.$key: data.${key%=*}: a key of .*; \"synthetic\" does not have it, remove it\$" \
        stderr.txt || fail "expected data.$key to be refused"
done
expect_bad 's/"data": {/"data": {"target": "y", /' \
    'bad.json:3:22: data.target: a key of csv; "synthetic" does not have it, remove it'
run config.json --set data.image_size=32 --set data.standardize=false
expect_code 0

# Keys about the size of pictures that do not go together are refused; the message names the cure.
expect_pictures() {
    keys=$1
    shift
    run config.json --set data.name=folder --set data.path=. "$@"
    expect_code 78
    grep -q -F "$keys" stderr.txt || fail "expected \"$keys\" for $*"
}
expect_pictures 'pictures: expected "imagenet", found "places"' --set data.pictures=places
expect_pictures 'unknown interpolation "area"; expected one of' --set data.resize=[4,5] --set data.interpolation=area
expect_pictures 'crop: cuts out the centre of resized pictures; set data.resize' --set data.crop=5
expect_pictures 'interpolation: is how pictures are resized; set data.resize' --set data.interpolation=bicubic
expect_pictures 'resize: 9 is the size of the shorter side, so the longer sides differ; set data.crop as well' \
    --set data.resize=9
expect_pictures 'crop: larger than the resized pictures; expected at most 9×9 ' --set data.resize=9 --set data.crop=10
expect_pictures 'crop: larger than the resized pictures; expected at most 9×20 ' \
    --set data.resize=[9,20] --set data.crop=[10,4]
expect_pictures 'image_size: another rule than data.resize for the size of pictures; remove one of the two' \
    --set data.resize=[9,20] --set data.image_size=33
for size in 0 4097 2.5 [3] [3,4,5] '"big"' [3,-1]; do
    expect_pictures 'resize: expected an integer from 1 to 4096, or [height, width]' --set "data.resize=$size"
done
for key in resize=255 resize=[256,256] crop=223 interpolation=bicubic channels=1 mean=0.5 'std=[0.229,0.224,0.226]' \
    'mean=[1,2,3,4,5]'; do
    expect_pictures "${key%%=*}: contradicts data.pictures \"imagenet\", which has a value for it; remove one of the two" \
        --set data.pictures=imagenet --set "data.$key"
done

# Augmentation of images is refused for data without images.
printf 'a,b,y\n1,2,u\n3,4,v\n' >table.csv
for key in crop=1 flip=true rotate=5 erase=2 brightness=0.2 resized_crop=0.5; do
    run config.json --set data.name=csv --set data.path=table.csv --set data.target=y --set data.limit=0 \
        --set 'model={"layers": [{"type": "flatten"}, {"type": "dense", "out": 2}]}' --set "augment.$key"
    expect_code 78
    grep -q "^trainer: --set augment.$key: augment.${key%=*}: applies to images only, but a row of this data is 2" \
        stderr.txt || fail "expected augment.$key to be refused"
done
expect_bad_set augment.crop=57 'augment.crop: expected at most 56 for images of 28×28, found 57'
expect_bad_set augment.rotate=46 'augment: "rotate" must be an integer from 0 to 45, found 46'

# ---- devices ----
expect_bad_set devices=ref:0 "devices 'ref:0' asks for none: at least 1 is needed"
expect_bad_set devices=ref:2000 "devices 'ref:2000' asks for too many: at most 1024 work together"
expect_bad_set devices=ref:x "cannot read devices 'ref:x': expected auto, cpu, cpu:COUNT, or \
KIND:INDEX,INDEX…, for example --devices cpu:2"
run config.json --devices gpu:2
expect_code 78
grep -q "^trainer: --set devices=\"gpu:2\": cannot read devices 'gpu:2': .* kinds here: .*ref" stderr.txt ||
    fail 'expected the kinds of devices there are'

# More devices than CPUs are allowed, with a warning.
cpus=$(nproc)
many=$((cpus + 1))
word=CPUs
[ "$cpus" -gt 1 ] || word=CPU
run config.json --set "devices=ref:$many" --set "shards=$many"
expect_code 0
expect_stderr_line "trainer: warning: $many workers share $cpus allowed $word: slower than fewer workers"

# There is also a warning about workers without a shard, and about shards with few rows. The default
# number of shards causes no warning.
run config.json --set devices=ref:3 --set shards=2
expect_stderr_line "trainer: warning: 1 of 3 workers has no shard: a minibatch has 2 shards, and more workers \
than that do not make a step faster; set devices to \"auto\" or to fewer, or increase shards, which trains other weights"
for cure in devices=auto devices=ref:2 shards=3; do
    run config.json --set devices=ref:3 --set shards=2 --set $cure
    grep -q 'no shard' stderr.txt && fail "a cure that works: $cure"
done
run config.json --set shards=8
expect_stderr_line "trainer: warning: shards: 64 rows in 8 shards are fewer than 16 rows each, which is slow; \
the default is 4 shards"
run config.json --set devices=ref:2
grep -q 'rows in\|have no shard' stderr.txt && fail 'expected no word on shards'

# ---- the model ----
expect_bad 's/"kernel": 5/"kernel": 99/' \
    "bad.json:5:5: conv2d 'conv1': kernel 99×99 does not fit its 28×28 input; use a smaller kernel or padding ≥ 36"
expect_bad 's/"out": 10/"out": 7/' \
    "bad.json:9:5: dense 'fc1': the last layer gives 7 features, but 10 are needed, one for each class, target, or quantile of a target; make it give 10"
expect_bad_set model.layers.0.type=conv2 'layer 0: unknown type "conv2"; did you mean "conv2d"?'
expect_bad_set model.layers.0.out=0 \
    "conv2d 'conv1': \"out\" must be an integer from 1 to 1048576, found 0"
expect_bad_set model.layers=3 'model: "layers" must be a list of layers, found a number'
# --print-config reads no data. It refuses wrong keys of layers as a run does, and accepts shapes that
# fit no data.
for set in model.layers.0.kernl=5 model.layers.1.type=relo model.layers.4.from=conv2; do
    run config.json --set "$set"
    expect_code 78
    cp stderr.txt run.txt
    expect_failure 78 "$(tail -n 1 run.txt | sed 's/^trainer: //')" config.json --set "$set" --print-config
done
expect_failure 78 "--set model.layers.0.kernl=5: conv2d 'conv1': unknown key \"kernl\"; did you mean \"kernel\"?" \
    config.json --set model.layers.0.kernl=5 --print-config
run config.json --set model.layers.0.kernel=99 --print-config
expect_code 0
expect_failure 66 '--set model=nowhere.json: nowhere.json: no such file' config.json \
    --set model=nowhere.json
printf '{"layers": [' >model.json
expect_failure 78 "model.json:1:13: expected ']' for the '[' at 1:12, found the end of the text; \
is the file complete?" \
    config.json --set model=model.json

# ---- arguments ----
help="\`$program --help\` lists what there is" # with the name by which the program was called
expect_failure 64 "which config? Try \`$program examples/fashion_mnist.json\`; $help"
expect_failure 64 "one config at a time; do not know what to do with b.json; $help" \
    config.json b.json
expect_failure 64 "unknown option --bogus; $help" config.json --bogus
expect_failure 64 "unknown option -x; $help" config.json -xyz
expect_failure 64 "a value is missing after --set; $help" config.json --set
expect_failure 64 "--set nonsense: expected KEY=VALUE, found no '='" config.json --set nonsense
expect_failure 64 "--set =3: expected a key before '=', found none" config.json --set =3

# ---- memory ----
# 783,000,000 bytes for the weights of the first layer; with a sanitizer the program needs more than the limit to begin
large='model.layers=[{"type":"flatten"},{"type":"dense","out":250000},{"type":"dense","out":10}]'
if (ulimit -v 600000 && "$program" --version) >stdout.txt 2>stderr.txt; then
    label='a model under ulimit -v'
    (ulimit -v 600000 && exec "$program" config.json --set "$large") >stdout.txt 2>stderr.txt </dev/null
    code=$?
    expect_code 71
    expect_stderr_line 'trainer: out of memory for .*; the memory of this process is limited (ulimit -v is 600000 KiB): raise the limit'
fi

finish
