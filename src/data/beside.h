/* Work beside the caller's: on another thread where one can be had, else when it is waited for.
 *
 *     ls_beside other;
 *     ls_beside_begin(&other, read_test_rows, &split[1]);
 *     status = read_training_rows(&split[0]);          // at the same time
 *     other_status = ls_beside_end(&other);
 *
 * Between the two calls the work owns what `arg` points to. What the caller did before the first call is visible to the
 * work, and what the work did is visible behind the second: starting and joining a thread order it so. One thread at a
 * time.
 */
#ifndef DATA_BESIDE_H
#define DATA_BESIDE_H

#include "hash/hash.h"

#include <pthread.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef struct ls_beside {
    int (*run)(void *arg);
    void *arg;
    int status;
    bool started;
    pthread_t thread;
} ls_beside;

/* `other` is the caller's memory, which stays where it is until the end. */
void ls_beside_begin(ls_beside *other, int (*run)(void *arg), void *arg);

/* Waits for the work; what it returned. Exactly once behind each begin. */
int ls_beside_end(ls_beside *other);

/* Hashing bytes on another thread while they come to lie one after another in memory.
 *
 *     ls_hash_behind h;
 *     ls_hash_behind_begin(&h, &hash, memory);
 *     … fill memory[0 … 99] …; ls_hash_behind_reach(&h, 100);
 *     … fill more …           ; ls_hash_behind_reach(&h, 250);
 *     ls_hash_behind_end(&h);                          // `hash` has 250 bytes more
 *
 * `hash` is the other thread's until the end. Bytes below what was reached are not written any more; `reached` and `over`
 * are behind the lock, so that bytes that were written before they were reached are visible to whoever sees that. */
typedef struct ls_hash_behind {
    ls_beside other;
    ls_sha256 *hash;
    const uint8_t *bytes;
    pthread_mutex_t lock;
    pthread_cond_t more;
    size_t reached;
    bool over;
} ls_hash_behind;

void ls_hash_behind_begin(ls_hash_behind *h, ls_sha256 *hash, const void *bytes);
/* `count` bytes are there; no less than were before. */
void ls_hash_behind_reach(ls_hash_behind *h, size_t count);
void ls_hash_behind_end(ls_hash_behind *h);

#endif
