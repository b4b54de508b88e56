#!/bin/sh
# launched.sh TRAINER [OLD_MPICH]: a program that a launcher has started several times over, and that has no engine to talk to the
# others by, or one by which it finds no others, refuses to train the same thing as often; absent and broken are told
# apart, and an MPICH that hangs is refused by its number. With --hosts it is the program that starts a launcher, and ends one that hangs. Exit status 1 if not.
# shellcheck disable=SC2015,SC2016,SC2086 # conditions of two parts; scripts that are written as texts; $soon is words
set -eu
unset OMPI_COMM_WORLD_SIZE OMPI_COMM_WORLD_RANK PMI_SIZE SLURM_STEP_NUM_TASKS
work=$(mktemp -d)
trap 'rm -rf -- "$work"' EXIT INT TERM
cp -- "$1" "$work/trainer"
cat >"$work/c.json" <<TEXT
{"data": {"name": "synthetic", "limit": 64}, "batch_size": 32, "epochs": 1, "run_dir": null,
 "optimizer": {"name": "sgd", "lr": 0.05}, "model": {"layers": [{"type": "flatten"}, {"type": "dense", "out": 10}]}}
TEXT

# refuses VARIABLE WORD
refuses() {
    if env "$1=3" "$work/trainer" "$work/c.json" --devices cpu:1 --quiet >"$work/out" 2>&1; then
        echo "FAILED: $1=3 trains"
        exit 1
    fi
    if ! grep -q "started as 3 processes.*liblockstep-mpi.so.*($2)" "$work/out"; then
        echo "FAILED: $1=3 says:"
        cat "$work/out"
        exit 1
    fi
}
refuses OMPI_COMM_WORLD_SIZE absent
refuses PMI_SIZE absent
refuses SLURM_STEP_NUM_TASKS absent
if [ -e "$(dirname -- "$1")/liblockstep-mpi.so" ]; then # of processes that MPI did not start
    cp -- "$(dirname -- "$1")/liblockstep-mpi.so" "$work/"
    if SLURM_STEP_NUM_TASKS=3 "$work/trainer" "$work/c.json" --devices cpu:1 --quiet >"$work/out" 2>&1 ||
        ! grep -q "started as 3 processes that do not find each other" "$work/out"; then
        echo "FAILED: with an engine that finds no others it says:"
        cat "$work/out"
        exit 1
    fi
fi
if [ -n "${2-}" ]; then
    if LD_PRELOAD=$2 "$work/trainer" "$work/c.json" --devices cpu:1 --quiet --set cluster.engine=mpi >"$work/out" 2>&1 ||
        ! grep -q "MPICH 4.0 hangs .*or MPICH 5" "$work/out"; then
        echo "FAILED: MPICH 4.0 is not refused:"
        cat "$work/out"
        exit 1
    fi
fi
echo "no library" >"$work/liblockstep-mpi.so"
refuses OMPI_COMM_WORLD_SIZE broken
OMPI_COMM_WORLD_SIZE=3 "$work/trainer" "$work/c.json" --devices cpu:1 --quiet --set cluster.engine=none >/dev/null 2>&1
rm "$work/liblockstep-mpi.so"

# expect CODE TEXT [ARGUMENT...]: by --hosts, with the mpirun in $work/bin
expect() {
    code=$1 text=$2 got=0
    shift 2
    (cd "$work" && rm -f asked && timeout 60 env PATH="$path" ./trainer c.json --devices cpu:1 --quiet --set data.limit=2048 "$@") \
        >"$work/out" 2>&1 || got=$?
    if [ "$got" -ne "$code" ] || ! grep -q -e "$text" "$work/out"; then
        echo "FAILED: $* ends with $got and says:"
        cat "$work/out"
        exit 1
    fi
}
# MPICH's launcher tells of each process that ends by SIGUSR1: the second one is no wish to stop at once.
(cd "$work" && exec ./trainer c.json --devices cpu:1 --quiet --set data.limit=2048 --set epochs=100000 --set run_dir=told) \
    >"$work/out" 2>&1 &
told=$!
while [ ! -s "$work/told/metrics.jsonl" ]; do sleep 0.05; done
sleep 0.3
i=0
while [ $i -lt 300 ]; do
    kill -USR1 $told 2>/dev/null || true
    i=$((i + 1))
done
got=0
wait $told || got=$?
if [ $got -ne 75 ]; then
    echo "FAILED: told often, it ends with $got:"
    cat "$work/out"
    exit 1
fi

mkdir "$work/bin"
path=$work/bin:$PATH
# launcher COMMANDS: what an mpirun does that is asked for $@
launcher() {
    cat >"$work/bin/mpirun" <<TEXT
#!/bin/sh
[ "\$1" != --version ] || exit 0
while [ "\${1##*/}" != trainer ]; do shift; done
$1
TEXT
    chmod +x "$work/bin/mpirun"
}
# The program's file is replaced while it trains.
launcher '"$@" --set cluster.engine=none & while [ ! -s new/metrics.jsonl ]; do sleep 0.05; done; cp trainer copy; mv copy trainer
    sleep 2; kill -USR1 $!; wait $!; exit 9'
expect 9 'mpirun -N 1' --hosts a,b --set epochs=100000 --set run_dir=new --set cluster.deadline_s=0.5

# It takes its time when the trainer here is gone; where it hangs, what the run has left says how it ended.
trainer='"$@" --set cluster.engine=none'
hang="trap 'touch asked; exit 9' TERM; sleep 60 & wait"
soon='--hosts a,b --set cluster.deadline_s=0.4'
launcher "$trainer; sleep 1.5; exit 9"
expect 9 'mpirun -N 1 --bind-to none --enable-recovery .*-H a,b .*trainer .*c.json' --hosts a,b --set epochs=30
launcher "$trainer; $hang"
expect 0 'mpirun hangs, and its trainer here is gone' $soon --set epochs=30 --set run_dir=whole
[ -e "$work/asked" ] || { echo 'FAILED: a hanging mpirun is not asked to end'; exit 1; }
expect 71 'the run has left no records' $soon --set epochs=30
# One that is gone as soon as it is there.
expect 71 'the run has left no records' $soon --set data.name=mnist --set data.path=/nowhere
launcher "$trainer & until [ -s saved/metrics.jsonl ]; do sleep 0.05; done; sleep 0.3; kill -USR1 \$!; wait; $hang"
expect 75 'go on with: trainer --resume saved' $soon --set epochs=100000 --set run_dir=saved
launcher "$trainer & until [ -s said/metrics.jsonl ]; do sleep 0.05; done; sleep 0.3; kill -USR1 \$!; wait; exit 0"
expect 75 'go on with: trainer --resume said' $soon --set epochs=100000 --set run_dir=said
launcher "$trainer; $hang"
expect 71 'the run is not saved' $soon --set epochs=30 --set run_dir=nan --inject worker=0,step=1500,kind=nan

launcher "$trainer; code=\$?; [ -e again ] || { touch again && exit 75; }; exit \$code"
expect 0 'trainer --resume r .*c.json$' --hosts=a,b --relaunch 2 --set epochs=1 --set run_dir=r
rm "$work/again"
expect 75 'mpirun -N 1' --hosts a,b --set epochs=1
# What is gone on with is the run that was started, not the latest that there is.
sed -i 's/"run_dir": null,//' "$work/c.json"
rm "$work/again"
launcher "$trainer; code=\$?; [ -e again ] && exit \$code; touch again; cp -r runs/*-run runs/later
    sed -i 's/\"time\":\"2/\"time\":\"3/' runs/later/metrics.jsonl; exit 75"
expect 0 'trainer --set run_dir=runs/' --hosts a,b --relaunch 1 --set epochs=1
run=$(sed -n 's/.*run_dir=\([^ ]*\).*/\1/p' "$work/out")
grep -q -e "--resume $run " "$work/out" || { echo 'FAILED: another run is gone on with'; cat "$work/out"; exit 1; }

# The words of a start: whatever is the launcher's alone is left out, however it was spelled; the rest stays.
launcher 'echo "words: $*"; [ -e once ] || { touch once; exit 75; }'
expect 0 'words: .*/trainer --resume r1 --devices cpu:1 --quiet --set data.limit=2048 --set run_dir=r1 -- c.json$' \
    --hosts a --host a,b --relau 1 --relaunch=2 --set run_dir=r1 --
rm "$work/once"
SLURM_STEP_NUM_TASKS=1 expect 0 'words: .*/trainer --resume whole --devices' --host=a,b --resum saved --resume=whole --relaunch 1
expect 64 '--hosts needs names' --hosts ''
expect 64 '--relaunch needs --hosts' --hosts a,b --relaunch ''
launcher 'exit 9'
got=0
(cd "$work" && exec env --ignore-signal=CHLD PATH="$path" ./trainer c.json --hosts a,b) >"$work/out" 2>&1 || got=$?
[ $got -eq 9 ] || { echo "FAILED: where SIGCHLD is ignored, it ends with $got"; exit 1; }

# What is asked of the program, and its own end, reach mpirun, which has every signal as it is by default.
launcher 'exit $((0x$(sed -n "s/SigIgn:.//p" /proc/self/status) >> 12 & 0x1001))'
expect 0 'mpirun -N 1' --hosts a,b
launcher 'trap "echo >>calls" USR1; trap "touch asked; exit 9" TERM; touch up; while :; do sleep 0.1; done'
begin() {
    rm -f "$work/up" "$work/asked"
    (cd "$work" && exec env PATH="$path" ./trainer c.json --hosts a,b) >"$work/out" 2>&1 &
    run=$!
    until [ -e "$work/up" ]; do sleep 0.05; done
}
# soon COMMAND...
soon() {
    tries=0
    until "$@"; do
        tries=$((tries + 1))
        [ $tries -lt 600 ] || { echo "FAILED: never $*"; cat "$work/out"; exit 1; }
        sleep 0.1
    done
}
told_twice() { [ -e "$work/calls" ] && [ "$(wc -l <"$work/calls")" -ge 2 ]; }
begin
kill -HUP $run
soon told_twice
kill -TERM $run
got=0
wait $run || got=$?
[ $got -eq 130 ] && [ -e "$work/asked" ] || { echo "FAILED: asked twice, it ends with $got, or its mpirun does not"; exit 1; }
begin
kill -KILL $run
soon [ -e "$work/asked" ]
expect 64 '--relaunch needs --hosts' --relaunch 2
expect 64 '--relaunch needs --hosts' --relaunch x --hosts a
OMPI_COMM_WORLD_SIZE=2 expect 64 'not for what a launcher starts' --hosts a,b
path=/nowhere
expect 71 'mpirun cannot be started' --hosts a,b
