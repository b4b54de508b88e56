/* Which ranks of a group share a GPU.
 *
 * GPUs are numbered as they first appear among the ranks: 0 is rank 0's. The lowest rank on a GPU
 * leads: it alone speaks for the GPU to the others, as NCCL allows one rank for each.
 */
#ifndef CUDA_CUDA_COMM_PLACES_H
#define CUDA_CUDA_COMM_PLACES_H

#include <lockstep/host.h>
#include <lockstep/status.h>

typedef struct ls_cuda_places {
    int gpus;
    int *gpu;     /* [rank] its GPU's number */
    int *leader;  /* [gpu] its lowest rank */
    int *ordinal; /* [gpu] as CUDA counts */
} ls_cuda_places;

/* Room for so many ranks, none of which is there yet. Errors: LS_ENOMEM. */
int ls_cuda_places_init(ls_cuda_places *places, const ls_host *host, int ranks, ls_error *err);
void ls_cuda_places_fini(ls_cuda_places *places, const ls_host *host); /* zeroed is allowed */

/* The next rank, from 0 on, is on that GPU of CUDA's count. */
void ls_cuda_places_add(ls_cuda_places *places, int rank, int ordinal);

int ls_cuda_places_share(const ls_cuda_places *places, int rank, int other);
int ls_cuda_places_leads(const ls_cuda_places *places, int rank);

#endif
