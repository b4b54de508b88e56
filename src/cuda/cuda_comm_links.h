/* The NCCL communicators of a group's ranks, one for each GPU, and their watchdog. The lowest of
 * the ranks that share a GPU has it; the others only meet.
 *
 *     ls_cuda_links_connect(links, rank, …)                  every rank at the same time
 *     ls_cuda_links_begin(&nccl, links, rank, err)           then NCCL calls on `nccl`
 *     ls_cuda_links_end(links, rank, result, …)              their result; waits until they are enqueued
 *
 * All communicators are non-blocking, so that no call into NCCL can hang: a rank that waits for
 * others looks at the deadline and at the barrier's abort again and again.
 *
 * The watchdog, one thread for a group, asks every communicator for asynchronous errors. On the first
 * one it aborts the barrier. When that is aborted, by whomever, it aborts *all* communicators:
 * a kernel of NCCL that waits for a lost peer ends in no other way. Nobody frees memory that NCCL may
 * touch before ls_cuda_links_are_gone.
 *
 * A lock for each rank keeps the worker's calls and the watchdog's apart; it is never held while
 * waiting.
 */
#ifndef CUDA_CUDA_COMM_LINKS_H
#define CUDA_CUDA_COMM_LINKS_H

#include "sync/barrier.h"

#include <lockstep/host.h>
#include <lockstep/status.h>
#include <nccl.h>

typedef struct ls_cuda_links ls_cuda_links;

/* `barrier` outlives the links. Nothing of NCCL is called yet. Errors: LS_ENOMEM, LS_ESYSTEM. */
int ls_cuda_links_create(ls_cuda_links **out, ls_barrier *barrier, int ranks, const ls_host *host,
                         ls_error *err);

/* Ends the watchdog, which aborts what is left. No rank may be inside a call. NULL is allowed. */
void ls_cuda_links_destroy(ls_cuda_links *links);

/* Who a rank is to NCCL. */
typedef struct ls_cuda_peer {
    int rank;  /* among NCCL's; −1: it has no communicator. Rank 0 of the group is 0 here too */
    int ranks; /* of NCCL */
} ls_cuda_peer;

/* Collective; the rank's device is current. Meets twice. Errors: LS_EDEVICE, LS_EUNSUPPORTED (two
 * of NCCL's ranks on one GPU), LS_ESYSTEM, LS_EABORTED, LS_ETIMEDOUT. */
int ls_cuda_links_connect(ls_cuda_links *links, int rank, ls_cuda_peer peer, uint64_t deadline_ns,
                          ls_error *err);

/* The communicator of a rank that has one, locked until ls_cuda_links_end. Errors: LS_EABORTED. */
int ls_cuda_links_begin(ncclComm_t *out, ls_cuda_links *links, int rank, ls_error *err);
/* Behind a successful begin, always. Errors: LS_EDEVICE, LS_EABORTED, LS_ETIMEDOUT. */
int ls_cuda_links_end(ls_cuda_links *links, int rank, ncclResult_t result, uint64_t deadline_ns,
                      ls_error *err);

/* Between two looks at something that is waited for: longer the more `rounds` there were. */
void ls_cuda_nap(unsigned rounds);

/* The group is aborted: tells the watchdog so. Any thread. */
void ls_cuda_links_wake(ls_cuda_links *links);
/* Waits until every communicator was aborted, or there was none; zero if the deadline passed first.
 * Any thread. */
int ls_cuda_links_are_gone(ls_cuda_links *links, uint64_t deadline_ns);

#endif
