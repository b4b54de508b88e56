/* SPDX-License-Identifier: MIT */
/* The public all-reduce (<lockstep/collective.h>). It uses a communicator of the trainer (comm.h),
 * as if the array of each rank were the gradient of one shard. A group of several ranks requires
 * arrays of a multiple of 16 floats, and another array for the output than for the input. Other
 * arrays are copied through staging buffers. */
#include "base/error.h"
#include "base/host.h"
#include "base/sized.h"
#include "base/stack.h"
#include "comm/comm.h"
#include "sync/park.h"

#include <lockstep/collective.h>
#include <string.h>

#define GRAIN 16        /* a communicator's arrays have a multiple of this number of floats */
#define RANKS_MAX 65535 /* largest number of ranks of a group */

/* Data of one rank. During calls only the rank's thread accesses it. */
typedef struct rank_state {
    ls_comm *comm; /* the rank's communicator; NULL before its first call */
    /* device of the rank's first call; later calls must pass the same device */
    ls_device *device;
    /* staging buffers for the arguments `in` and `out` of ls_all_reduce; NULL: not needed so far */
    float *stage[2];
    char own_cache_line[64]; /* padding: the next rank's data is on another cache line */
} rank_state;

struct ls_collective {
    ls_comm_group *group;
    rank_state *state; /* [ranks] */
    int ranks;         /* number of ranks */
    size_t floats;     /* length of the caller's arrays */
    size_t padded;     /* `floats`, rounded up to a multiple of GRAIN */
    /* {0, padded}: the group's description must list parameters, so the whole array is described as
     * one parameter */
    size_t param_offsets[2];
    const ls_host *host;
};

static int find_type(const ls_comm_type **out, const char *name, ls_error *err)
{
    const ls_comm_type *const *types = ls_comm_types();
    char why[LS_COMM_WHY];
    *out = name ? ls_comm_find(types, name, why) : types[0];
    return *out ? LS_OK
                : ls_fail(err, LS_EINVAL, "all-reduce '%.300s' does not exist; %s", name, why);
}

static int check_options(const ls_collective_options *o, ls_error *err)
{
    if (o->ranks < 1 || o->ranks > RANKS_MAX)
        return ls_fail(err, LS_EINVAL, "ls_collective_create: %d ranks; give 1 to %d", o->ranks,
                       RANKS_MAX);
    if (o->floats == 0 || o->floats > SIZE_MAX / sizeof(float) - GRAIN)
        return ls_fail(err, LS_EINVAL, "ls_collective_create: %zu floats cannot be added up",
                       o->floats);
    return LS_OK;
}

static int make_group(ls_collective *c, const ls_collective_options *o, ls_error *err)
{
    ls_comm_group_desc desc = {
        .ranks = o->ranks,
        .shards = o->ranks,
        .floats = c->padded,
        .param_offsets = c->param_offsets,
        .param_count = 1,
        .timeout_ns = o->timeout ? o->timeout : LS_FOREVER,
        .spins = ls_spins_for(o->ranks, ls_allowed_cpus()),
        .host = o->host,
    };
    int status = find_type(&desc.type, o->algorithm, err);
    return status ? status : desc.type->group_create(&c->group, &desc, err);
}

int ls_collective_create(ls_collective **out, const ls_collective_options *options, ls_error *err)
{
    ls_collective_options o;
    if (out)
        *out = NULL;
    int status = out ? ls_sized_take(&o, sizeof o, options, "ls_collective_options", err)
                     : ls_fail(err, LS_EINVAL, "ls_collective_create: nowhere to put the group");
    if (status == LS_OK)
        status = ls_host_check(o.host, err);
    if (status == LS_OK)
        status = ls_stack_check(LS_CALL_STACK_BYTES, "ls_collective_create", err);
    if (status == LS_OK)
        status = check_options(&o, err);
    if (status)
        return status;
    ls_collective *c = ls_alloc(o.host, sizeof *c);
    if (!c)
        return ls_fail(err, LS_ENOMEM, "out of memory for a group of %d ranks", o.ranks);
    c->host = o.host;
    c->ranks = o.ranks;
    c->floats = o.floats;
    c->padded = (c->floats + GRAIN - 1) / GRAIN * GRAIN;
    c->param_offsets[1] = c->padded;
    c->state = ls_alloc_array(c->host, (size_t)c->ranks, sizeof *c->state);
    status = c->state ? make_group(c, &o, err)
                      : ls_fail(err, LS_ENOMEM, "out of memory for a group of %d ranks", c->ranks);
    if (status) {
        ls_collective_destroy(c);
        return status;
    }
    *out = c;
    return LS_OK;
}

void ls_collective_destroy(ls_collective *c)
{
    if (!c)
        return;
    for (int r = 0; c->state && r < c->ranks; r++) {
        ls_free(c->host, c->state[r].stage[0]);
        ls_free(c->host, c->state[r].stage[1]);
        if (c->state[r].comm)
            c->group->type->leave(c->state[r].comm);
    }
    if (c->group)
        c->group->type->group_destroy(c->group);
    ls_free(c->host, c->state);
    ls_free(c->host, c);
}

void ls_collective_abort(ls_collective *c)
{
    if (c)
        c->group->type->abort(c->group);
}

/* In the rank's first call, joins the group with `device`. In later calls, checks that the device
 * is the one of the first call. */
static int join_once(ls_collective *c, int rank, ls_device *device, ls_error *err)
{
    rank_state *state = &c->state[rank];
    if (state->comm && state->device != device)
        return ls_fail(err, LS_EINVAL,
                       "ls_all_reduce: rank %d came with another device than before", rank);
    state->device = device;
    return state->comm ? LS_OK : c->group->type->join(&state->comm, c->group, rank, device, err);
}

/* Allocates a staging buffer, if *stage is NULL. The buffer is in host memory, which every device
 * of the group can access, because ls_host_join refuses other devices. */
static int make_stage(const ls_collective *c, float **stage, ls_error *err)
{
    if (!*stage)
        *stage = ls_alloc_array(c->host, c->padded, sizeof(float));
    return *stage ? LS_OK : ls_fail(err, LS_ENOMEM, "out of memory for %zu floats", c->padded);
}

/* Runs one all-reduce of a rank, through staging buffers if necessary. */
static int reduce(ls_collective *c, int rank, const float *in, float *out, ls_error *err)
{
    rank_state *state = &c->state[rank];
    const size_t bytes = c->floats * sizeof(float);
    const bool ragged = c->padded != c->floats;
    ls_partial partial = {{rank, rank + 1}, in};
    float *total = out;
    ls_comm_times times = {0};
    int status = LS_OK;
    if (ragged || in == out) {
        status = make_stage(c, &state->stage[0], err);
        if (status)
            return status;
        memcpy(state->stage[0], in, bytes);
        partial.data = state->stage[0];
    }
    if (ragged) {
        status = make_stage(c, &state->stage[1], err);
        if (status)
            return status;
        total = state->stage[1];
    }
    status = c->group->type->all_reduce(state->comm, NULL, &partial, 1, total, &times, err);
    if (status == LS_OK && total != out)
        memcpy(out, total, bytes);
    return status;
}

int ls_all_reduce(ls_collective *c, int rank, ls_device *device, const float *in, float *out,
                  ls_error *err)
{
    int status = LS_OK;
    if (!c)
        return ls_fail(err, LS_EINVAL, "ls_all_reduce: no group");
    if (rank < 0 || rank >= c->ranks)
        status =
            ls_fail(err, LS_EINVAL, "ls_all_reduce: rank %d of %d does not exist", rank, c->ranks);
    else if (!device || !in || !out)
        status = ls_fail(err, LS_EINVAL, "ls_all_reduce: rank %d came without %s", rank,
                         device ? "an array" : "a device");
    else
        status = join_once(c, rank, device, err);
    if (status == LS_OK)
        status = reduce(c, rank, in, out, err);
    if (status)
        ls_collective_abort(c); /* the other ranks must not wait for this rank */
    return status;
}
