/* Where the ranks of a group meet: a barrier whose every round ends the same way for all of them.
 *
 * One lock decides: the last arrival releases the round, an abort or the first rank whose time is
 * over ends the group, and whichever comes first refuses the other. What a rank wrote before a
 * meeting is visible to every rank behind it.
 */
#ifndef CUDA_CUDA_COMM_MEET_H
#define CUDA_CUDA_COMM_MEET_H

#include <lockstep/host.h>
#include <lockstep/status.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdint.h>

typedef struct ls_cuda_meet {
    pthread_mutex_t lock;
    pthread_cond_t changed;
    const ls_host *host;
    int ranks;
    unsigned spins;
    int arrived;            /* in this round */
    unsigned char *is_here; /* [rank] */
    _Atomic uint64_t round;
    atomic_int aborted;
    int ready; /* init succeeded */
} ls_cuda_meet;

void ls_cuda_nap(unsigned rounds); /* between two looks, longer the more `rounds` there were */

/* Errors: LS_ENOMEM, LS_ESYSTEM. */
int ls_cuda_meet_init(ls_cuda_meet *meet, const ls_host *host, int ranks, unsigned spins,
                      ls_error *err);
void ls_cuda_meet_fini(ls_cuda_meet *meet); /* a zeroed one is allowed */

/* Each rank's own thread. Errors: LS_EABORTED; LS_ETIMEDOUT, naming the ranks that are missing, for
 * the rank whose deadline passes first; the others are aborted then. */
int ls_cuda_meet_wait(ls_cuda_meet *meet, int rank, uint64_t deadline_ns, ls_error *err);

/* Any thread. Nobody passes any more. */
void ls_cuda_meet_abort(ls_cuda_meet *meet);
int ls_cuda_meet_aborted(const ls_cuda_meet *meet);

#endif
