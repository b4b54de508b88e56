#include "cuda/cuda_comm_places.h"

#include "cuda/cuda_device.h"

int ls_cuda_places_init(ls_cuda_places *p, const ls_host *host, int ranks, ls_error *err)
{
    *p = (ls_cuda_places){0};
    p->gpu = ls_alloc(host, 3 * (size_t)ranks * sizeof *p->gpu);
    if (!p->gpu)
        return ls_fail(err, LS_ENOMEM, "out of memory for a group of %d ranks", ranks);
    p->leader = p->gpu + ranks;
    p->ordinal = p->leader + ranks;
    return LS_OK;
}

void ls_cuda_places_fini(ls_cuda_places *p, const ls_host *host)
{
    ls_free(host, p->gpu);
    *p = (ls_cuda_places){0};
}

void ls_cuda_places_add(ls_cuda_places *p, int rank, int ordinal)
{
    int g = 0;
    while (g < p->gpus && p->ordinal[g] != ordinal)
        g++;
    if (g == p->gpus) {
        p->ordinal[g] = ordinal;
        p->leader[g] = rank;
        p->gpus++;
    }
    p->gpu[rank] = g;
}

int ls_cuda_places_share(const ls_cuda_places *p, int rank, int other)
{
    return p->gpu[rank] == p->gpu[other];
}

int ls_cuda_places_leads(const ls_cuda_places *p, int rank)
{
    return p->leader[p->gpu[rank]] == rank;
}
