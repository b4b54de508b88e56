#!/bin/sh
# SPDX-License-Identifier: MIT
#SBATCH --nodes=3
#SBATCH --ntasks-per-node=1
#SBATCH --cpus-per-task=16
#SBATCH --signal=USR1@120
#SBATCH --requeue
#SBATCH --open-mode=append
# Training on three nodes of a Slurm cluster: RUN=DIR sbatch train.sh CONFIG [options]. DIR is the run directory, by default
# runs/JOB. Two minutes before the job's time is over, all processes save after the same step and exit with status 75. The
# same command, or Slurm's own requeue of the job, continues the run from its checkpoint, or begins it again if it has none
# yet. Lockstep is built with -D LOCKSTEP_MPI=ON (docs/clusters.md).
run=${RUN:-runs/$SLURM_JOB_ID}
if [ "${1-}" != --resume ]; then
    set -- "$@" --set "run_dir=$run"
    if tail -n 1 "$run/metrics.jsonl" 2>/dev/null | grep -q '"status":"finished"'; then
        exit 0
    elif ls "$run"/checkpoints/step-*.safetensors >/dev/null 2>&1; then
        set -- "$@" --resume "$run"
    elif [ -e "$run/config.json" ]; then # ended before its first checkpoint
        rm -rf "$run.old" && mv "$run" "$run.old"
    fi
fi
exec srun --mpi=pmix --cpus-per-task="$SLURM_CPUS_PER_TASK" lockstep "$@"
