/* SPDX-License-Identifier: MIT */
/* bench_hosts BYTES SHARDS ROUNDS: measures a merge, the sum of the gradients over all hosts, and
 * MPI_Allreduce of as many bytes by the same MPI, in turns. mpirun starts one process of this
 * program on each host. For the merge and for MPI_Allreduce, the time of a round is that on the
 * slowest host. The first process prints a line of JSON with the median over the rounds for each,
 * in seconds. bench/hosts.py starts this program. */
#include "base/clock.h"
#include "cluster/cluster.h"
#include "measure.h"

#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>

enum { BLOCKS = 3, ROUNDS_MAX = 200 };

typedef struct bench {
    size_t floats;
    int shards, rounds, count;
    double reduced[BLOCKS * ROUNDS_MAX], merged[BLOCKS * ROUNDS_MAX], factor;
} bench;

static int fail(const ls_error *err)
{
    fprintf(stderr, "bench_hosts: %s\n", err->text);
    MPI_Abort(MPI_COMM_WORLD, 1);
    return 1;
}

static double since(uint64_t start)
{
    return (double)(ls_now_ns() - start) * 1e-9;
}

/* Measures MPI_Allreduce: seconds[k] becomes the time of round k in this process. All processes
 * begin a round at the same time. One round before round 0 warms up. */
static void reduce(bench *b, double *seconds, float *data)
{
    for (int k = -1; k < b->rounds; k++) {
        MPI_Barrier(MPI_COMM_WORLD);
        const uint64_t start = ls_now_ns();
        MPI_Allreduce(MPI_IN_PLACE, data, (int)b->floats, MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD);
        if (k >= 0)
            seconds[k] = since(start);
    }
}

/* Measures merges: seconds[k] becomes the time of round k in this process. While the cluster is
 * open, only its progress thread may call MPI. Therefore ls_cluster_share of 0 bytes replaces
 * MPI_Barrier. */
static int merge(bench *b, double *seconds, ls_error *err)
{
    MPI_Comm world = MPI_COMM_WORLD;
    const ls_cluster_options o = {
        .place = &world, .deadline_ns = 60000000000u, .open_ns = 60000000000u};
    ls_cluster_options options = o;
    ls_cluster *c = NULL;
    int status = ls_transport_load(&options.type, "mpi", err);
    if (status == LS_OK)
        status = ls_cluster_open(&c, &options, err);
    if (status == LS_OK)
        status = ls_cluster_prepare(c, b->shards, b->floats, err);
    for (int k = -1; k < b->rounds && status == LS_OK; k++) {
        status = ls_cluster_share(c, NULL, 0, err);
        const uint64_t start = ls_now_ns();
        if (status == LS_OK)
            status = ls_cluster_sum(c, NULL, err);
        ls_cluster_commit(c, status == LS_OK);
        if (k >= 0)
            seconds[k] = since(start);
    }
    b->factor = status == LS_OK ? ls_cluster_bytes_factor(c) : 0;
    ls_cluster_close(c);
    return status;
}

static double median(double *seconds, int count)
{
    MPI_Allreduce(MPI_IN_PLACE, seconds, count, MPI_DOUBLE, MPI_MAX, MPI_COMM_WORLD);
    sort_values(seconds, count);
    return seconds[count / 2];
}

int main(int argc, char **argv)
{
    static bench b;
    ls_error err = {0};
    int level, rank, hosts;
    MPI_Init_thread(&argc, &argv, MPI_THREAD_SERIALIZED, &level);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &hosts);
    if (argc != 4 || atoi(argv[3]) < 1 || atoi(argv[3]) > ROUNDS_MAX)
        return fail(&(ls_error){.text = "usage: bench_hosts BYTES SHARDS ROUNDS"});
    b.floats = strtoull(argv[1], NULL, 10) / sizeof(float) / 16 * 16;
    b.shards = atoi(argv[2]);
    b.rounds = atoi(argv[3]);
    float *data = calloc(b.floats, sizeof *data);
    if (!data)
        return fail(&(ls_error){.text = "out of memory"});
    for (int k = 0; k < BLOCKS; k++) {
        reduce(&b, b.reduced + k * b.rounds, data);
        if (merge(&b, b.merged + k * b.rounds, &err)) {
            free(data);
            return fail(&err);
        }
    }
    const double reduced = median(b.reduced, BLOCKS * b.rounds);
    const double merged = median(b.merged, BLOCKS * b.rounds);
    if (rank == 0)
        printf(
            "{\"hosts\": %d, \"bytes\": %zu, \"shards\": %d, \"factor\": %g, \"allreduce_s\": %.6f, "
            "\"merge_s\": %.6f}\n",
            hosts, b.floats * sizeof(float), b.shards, b.factor, reduced, merged);
    free(data);
    MPI_Finalize();
    return 0;
}
