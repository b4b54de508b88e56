#!/bin/sh
#SBATCH --nodes=3
#SBATCH --ntasks-per-node=1
#SBATCH --cpus-per-task=16
#SBATCH --signal=USR1@120
# Training on three nodes of a Slurm cluster: sbatch train.sh CONFIG [options]. Two minutes before the job's time is over,
# all save behind the same step and end with 75; the same line with --resume RUN goes on. Lockstep is built with
# -D LOCKSTEP_MPI=ON.
exec srun --mpi=pmix --cpus-per-task="$SLURM_CPUS_PER_TASK" lockstep "$@"
