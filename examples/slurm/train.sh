#!/bin/sh
# SPDX-License-Identifier: MIT
#SBATCH --nodes=3
#SBATCH --ntasks-per-node=1
#SBATCH --cpus-per-task=16
#SBATCH --signal=USR1@120
# Training on three nodes of a Slurm cluster: sbatch train.sh CONFIG [options]. Two minutes before the job's time is over,
# all processes save after the same step and exit with status 75; sbatch train.sh --resume RUN continues. Lockstep is
# built with -D LOCKSTEP_MPI=ON (docs/clusters.md).
exec srun --mpi=pmix --cpus-per-task="$SLURM_CPUS_PER_TASK" lockstep "$@"
