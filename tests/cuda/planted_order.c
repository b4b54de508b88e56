/* SPDX-License-Identifier: MIT */
/* planted_order BUG MODE: runs merges in which one wait is missing. The mistake must be detected.
 *
 *     none      nothing is missing
 *     staging   a pinned slot is refilled before its copy has run
 *     event     no stream waits for another
 *     mixed     the same, when some workers share a GPU and others do not
 *     bucket    a bucket that is merged before its step's all_reduce does not wait for its gradient
 *     sync      the host reads a download before the stream is done
 *     freed     a rank frees its memory before all communicators are aborted
 *
 * The program runs the shipped code; the doubles (simulated CUDA runtime and NCCL) leave out the
 * wait. For `freed` the linker helps: see __wrap_ls_cuda_links_are_gone. MODE is `threads`, for the
 * thread sanitizer, or `lazy`, in which a wrong order of execution gives wrong sums for one of some
 * seeds. Exit status: 0 if nothing was detected; 1 if something was, with a line that says what;
 * the sanitizer has a status of its own. */
#include "cuda/comm_gang.h"
#include "doubles/control.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { SHARDS = 40 /* a step has more uploads than there are slots */, FLOATS = 256 };

typedef struct kind {
    const ls_comm_type *type;
    int ranks, shards, ahead;
    int gpus[3];
} kind;

static const kind kinds[] = {
    {&ls_cuda_comm_ordered, 2, SHARDS, 0, {0, 1}},
    {&ls_cuda_comm_ordered, 2, SHARDS, 0, {0, 0}},
    {&ls_cuda_comm_ordered, 3, SHARDS, 0, {0, 0, 1}},
    {&ls_cuda_comm_nccl, 2, 2, 1, {0, 1}}, /* two numbers can be added in only one order */
};
enum { MIXED = 2, AHEAD = 3, KINDS = 4 };
static const size_t segments[] = {0, 64, 192};

typedef struct bug {
    const char *name;
    void (*plant)(void);
    int first, end; /* range of the kinds of merges in which the mistake is looked for */
    uint32_t seeds; /* number of seeds; one missing wait among many is detected with few of them */
} bug;

static int links_are_forgotten; /* set before any thread starts */

bool __real_ls_cuda_links_are_gone(ls_cuda_links *links, uint64_t deadline_ns);
bool __wrap_ls_cuda_links_are_gone(ls_cuda_links *links, uint64_t deadline_ns);

bool __wrap_ls_cuda_links_are_gone(ls_cuda_links *links, uint64_t deadline_ns)
{
    return links_are_forgotten || __real_ls_cuda_links_are_gone(links, deadline_ns);
}

static void drop_staging(void)
{
    dbl_skip_all("cudaEventSynchronize");
}

static void drop_events(void)
{
    dbl_skip_all("cudaStreamWaitEvent");
}

/* Leaves out the first wait of the second step. In the first step no bucket is enqueued ahead, and
 * each of the two ranks waits once, for its sums. */
static void drop_a_bucket_s_wait(void)
{
    dbl_skip("cudaStreamWaitEvent", 2 + 1);
}

static void drop_syncs(void)
{
    dbl_skip_all("cudaStreamSynchronize");
}

/* ---- merges that succeed -------------------------------------------------------------------- */

static int wrong_results(const comm_gang *g)
{
    float expected[FLOATS];
    if (comm_gang_status(g) != LS_OK) {
        printf("noticed: %s\n", comm_gang_text(g));
        return 1;
    }
    for (int step = 0; step < g->steps; step++) {
        comm_gang_expected(expected, g->ranks, g->shards, step, FLOATS);
        for (int r = 0; r < g->ranks; r++)
            if (memcmp(g->member[r].result[step], expected, sizeof expected) != 0) {
                printf("noticed: rank %d has another sum in step %d\n", r, step);
                return 1;
            }
    }
    return 0;
}

static int merge(dbl_mode mode, uint32_t seed, const kind *k, void (*plant)(void))
{
    comm_gang g = {.type = k->type,
                   .ranks = k->ranks,
                   .shards = k->shards,
                   .steps = 3,
                   .floats = FLOATS,
                   .gpus = k->gpus,
                   .ahead = k->ahead,
                   .segments = segments,
                   .segment_count = 3,
                   .plant = plant};
    dbl_begin(&(dbl_options){.mode = mode, .seed = seed, .devices = 2, .nccl_polls = 1});
    comm_gang_run(&g);
    const char *complaints = dbl_end();
    int noticed = complaints[0] != 0;
    if (noticed)
        printf("noticed: %s", complaints);
    noticed |= wrong_results(&g);
    comm_gang_free(&g);
    return noticed;
}

static int merge_in(dbl_mode mode, const bug *b)
{
    int noticed = 0;
    uint32_t seeds = mode == DBL_LAZY ? b->seeds : 1;
    for (uint32_t seed = 0; seed < seeds && !noticed; seed++)
        for (int k = b->first; k < b->end; k++)
            noticed |= merge(mode, seed, &kinds[k], b->plant);
    return noticed;
}

/* ---- a merge that is cut short -------------------------------------------------------------- */

/* The last rank never calls all_reduce. The watchdog pauses between two aborts, while kernels of
 * the other ranks still run. */
static int cut_short(void)
{
    comm_gang g = {.type = &ls_cuda_comm_nccl,
                   .ranks = 3,
                   .shards = 3,
                   .steps = 1,
                   .floats = FLOATS,
                   .check = 1,
                   .timeout_ns = 2000000000};
    dbl_begin(&(dbl_options){.mode = DBL_THREADS, .devices = 3, .patience_ns = 4000000000u});
    /* delays the last rank's second call, for which the other ranks wait */
    dbl_stall("ncclAllReduce", 6, 100000000);
    dbl_fail("ncclAllReduce", 6, 0);
    dbl_stall("ncclCommAbort", 2, 600000000);
    if (links_are_forgotten)
        dbl_skip_all("cudaStreamQuery"); /* every rank finds its streams without work */
    comm_gang_run(&g);
    const char *complaints = dbl_end();
    if (complaints[0])
        printf("noticed: %s", complaints);
    if (comm_gang_status(&g) == LS_OK)
        printf("a call of NCCL should have failed\n");
    comm_gang_free(&g);
    return complaints[0] != 0;
}

int main(int argc, char **argv)
{
    static const bug bugs[] = {
        {"none", NULL, 0, KINDS, 8},
        {"staging", drop_staging, 0, MIXED, 8},
        {"event", drop_events, 0, MIXED, 8},
        {"mixed", drop_events, MIXED, MIXED + 1, 8},
        {"bucket", drop_a_bucket_s_wait, AHEAD, AHEAD + 1, 100},
        {"sync", drop_syncs, 0, MIXED, 8},
    };
    if (argc != 3)
        return 2;
    dbl_mode mode = strcmp(argv[2], "lazy") == 0 ? DBL_LAZY : DBL_THREADS;
    links_are_forgotten = strcmp(argv[1], "freed") == 0;
    if (links_are_forgotten)
        return cut_short();
    for (size_t b = 0; b < sizeof bugs / sizeof *bugs; b++)
        if (strcmp(argv[1], bugs[b].name) == 0)
            return merge_in(mode, &bugs[b]) || (bugs[b].plant == NULL && cut_short());
    return 2;
}
