/* SPDX-License-Identifier: MIT */
/* An MPI program, started by mpirun, that passes a communicator to a trainer. Checks three things:
 * the weights equal the weights of a single process, MPI remains usable after the training, and a
 * second training is possible. */
#include <lockstep/trainer.h>

#include <mpi.h>
#include <stdio.h>
#include <string.h>

static const char config[] =
    "{\"data\": {\"name\": \"synthetic\", \"limit\": 512}, \"devices\": \"cpu:1\", \"batch_size\": 64,"
    " \"shards\": 4, \"epochs\": 2, \"run_dir\": null, \"init\": \"xavier\","
    " \"optimizer\": {\"name\": \"sgd\", \"lr\": 0.05},"
    " \"model\": {\"layers\": [{\"type\": \"flatten\"}, {\"type\": \"dense\", \"out\": 10}]}}";

static int train(char hash[65], const MPI_Comm *comm)
{
    ls_trainer *trainer;
    ls_error err;
    const ls_trainer_cluster cluster = {.size = sizeof cluster, .mpi_comm = comm};
    const ls_trainer_options options = {
        .size = sizeof options, .config_text = config, .cluster = &cluster};
    int status = ls_trainer_open(&trainer, &options, &err);
    if (status == LS_OK) {
        status = ls_trainer_run(trainer, &err);
        memcpy(hash, ls_trainer_result(trainer)->weights_sha256, 65);
        ls_trainer_close(trainer, NULL);
    }
    if (status)
        fprintf(stderr, "%s\n", err.text);
    return status;
}

static int fail(const char *what)
{
    fprintf(stderr, "FAILED: %s\n", what);
    MPI_Abort(MPI_COMM_WORLD, 1);
    return 1;
}

int main(int argc, char **argv)
{
    char alone[65], together[65];
    int level, rank, sum = 0;
    MPI_Comm all;
    MPI_Init_thread(&argc, &argv, MPI_THREAD_MULTIPLE, &level);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    /* a communicator that numbers the processes in another order */
    MPI_Comm_split(MPI_COMM_WORLD, 0, -rank, &all);
    if (train(alone, NULL) != LS_OK)
        return fail("training alone");
    for (int time = 0; time < 2; time++) {
        if (train(together, &all) != LS_OK)
            return fail("training together");
        if (strcmp(alone, together) != 0)
            return fail("the weights differ");
    }
    MPI_Allreduce(&rank, &sum, 1, MPI_INT, MPI_SUM, all);
    MPI_Comm_free(&all);
    MPI_Finalize();
    return sum == 1 ? 0 : 1;
}
