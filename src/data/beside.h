/* SPDX-License-Identifier: MIT */
/* Runs a function on another thread while its caller goes on. If no thread can be started, the
 * function runs when the caller waits for it.
 *
 *     ls_beside other;
 *     ls_beside_begin(&other, read_test_rows, &split[1]);
 *     status = read_training_rows(&split[0]);          // at the same time
 *     other_status = ls_beside_end(&other);
 *
 * Between the two calls the function owns the memory to which `arg` points. Memory order: the
 * caller's writes before ls_beside_begin happen before the function runs (pthread_create); the
 * function's writes happen before ls_beside_end returns (pthread_join). Only one thread may use an
 * ls_beside. */
#ifndef DATA_BESIDE_H
#define DATA_BESIDE_H

#include "hash/hash.h"

#include <pthread.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* A function that runs on another thread; see the top of this file. */
typedef struct ls_beside {
    int (*run)(void *arg);
    void *arg;
    int status;
    bool started;
    pthread_t thread;
} ls_beside;

/* Starts run(arg) on another thread. *other belongs to the caller, and must stay at the same
 * address until ls_beside_end. */
void ls_beside_begin(ls_beside *other, int (*run)(void *arg), void *arg);

/* Waits until run(arg) has returned, and returns its result. Must be called exactly once after each
 * ls_beside_begin. */
int ls_beside_end(ls_beside *other);

/* Hashes bytes on another thread while the caller writes them, in ascending order, to memory.
 *
 *     ls_hash_behind h;
 *     ls_hash_behind_begin(&h, &hash, memory);
 *     … fill memory[0 … 99] …; ls_hash_behind_reach(&h, 100);
 *     … fill more …           ; ls_hash_behind_reach(&h, 250);
 *     ls_hash_behind_end(&h);                          // `hash` has 250 bytes more
 *
 * `hash` belongs to the other thread until ls_hash_behind_end. After the caller has reported a byte
 * by ls_hash_behind_reach, it must not change that byte. Memory order: the caller writes bytes and
 * then sets `reached` while it holds `lock`; the other thread reads `reached` while it holds
 * `lock`, and then reads only bytes below it. The unlock of the one happens before the lock of the
 * other, so the bytes are visible. */
typedef struct ls_hash_behind {
    ls_beside other;
    ls_sha256 *hash;
    const uint8_t *bytes;
    pthread_mutex_t lock;
    pthread_cond_t more;
    size_t reached;
    bool over;
} ls_hash_behind;

/* Starts the thread that hashes the bytes at `bytes` into `hash`. *h belongs to the caller, and
 * must stay at the same address until ls_hash_behind_end. */
void ls_hash_behind_begin(ls_hash_behind *h, ls_sha256 *hash, const void *bytes);
/* Reports that the first `count` bytes at `bytes` have been written. `count` must not decrease. */
void ls_hash_behind_reach(ls_hash_behind *h, size_t count);
/* Waits until all reported bytes are hashed. Must be called exactly once after each
 * ls_hash_behind_begin. */
void ls_hash_behind_end(ls_hash_behind *h);

#endif
