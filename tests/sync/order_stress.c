/* A small stress of one structure for ThreadSanitizer: `order_stress ring` or `order_stress
 * barrier`. weakened_orders.sh compiles it with the orders as they are, where it must pass, and
 * with each one weakened, where the sanitizer must report a race on the plain data.
 *
 * It keeps away from parking, whose own read-modify-writes would hand over what a weakened order
 * no longer does: the ring's ends only try, and the barrier's ranks spin for longer than a round
 * takes. */
#include "sync/barrier.h"
#include "sync/ring.h"

#include <pthread.h>
#include <sched.h>
#include <stdio.h>
#include <string.h>

#define ITEMS 20000
#define ROUNDS 2000

static ls_ring ring;
static ls_barrier barrier;
static long counters[2];
static _Atomic int wrong;

static void *produce(void *arg)
{
    (void)arg;
    for (long n = 0; n < ITEMS; n++) {
        long item[4] = {n, n + 1, n + 2, n + 3};
        while (ls_ring_try_push(&ring, item) == LS_EAGAIN)
            sched_yield();
    }
    return NULL;
}

static void *consume(void *arg)
{
    (void)arg;
    for (long n = 0; n < ITEMS; n++) {
        long item[4];
        while (ls_ring_try_pop(&ring, item) == LS_EAGAIN)
            sched_yield();
        if (item[0] != n || item[3] != n + 3)
            atomic_fetch_add(&wrong, 1);
    }
    return NULL;
}

static void *pass(void *arg)
{
    int rank = *(int *)arg;
    for (long round = 1; round <= ROUNDS; round++) {
        counters[rank]++;
        if (ls_barrier_wait(&barrier, rank, UINT64_MAX, NULL) != LS_OK || counters[!rank] != round)
            atomic_fetch_add(&wrong, 1);
        if (ls_barrier_wait(&barrier, rank, UINT64_MAX, NULL) != LS_OK)
            atomic_fetch_add(&wrong, 1);
    }
    return NULL;
}

int main(int argc, char **argv)
{
    int ranks[2] = {0, 1};
    int on_ring = argc > 1 && strcmp(argv[1], "ring") == 0;
    pthread_t t[2];
    if (ls_ring_init(&ring, NULL, sizeof(long[4]), 2, NULL) != LS_OK ||
        ls_barrier_init(&barrier, NULL, 2, 20000000, NULL) != LS_OK)
        return 2;
    if (pthread_create(&t[0], NULL, on_ring ? produce : pass, &ranks[0]) != 0 ||
        pthread_create(&t[1], NULL, on_ring ? consume : pass, &ranks[1]) != 0)
        return 2;
    pthread_join(t[0], NULL);
    pthread_join(t[1], NULL);
    ls_barrier_fini(&barrier);
    ls_ring_fini(&ring);
    if (wrong)
        fprintf(stderr, "%d wrong values\n", wrong);
    return wrong != 0;
}
