/* SPDX-License-Identifier: MIT */
/* The chain: hashes of a run's states, by which the run can be verified (docs/verify.md).
 *
 * THE STATE HASH is a SHA-256 of everything on which the steps after a position depend, apart from
 * the data: the weights, the optimizer's states, the running statistics, the number of steps done,
 * the learning rate that the caller has set, and the keys of the recipe on which steps depend and
 * that differ from their defaults (ls_config_write_hashed). It contains no time, host, device or
 * path. Therefore it is the same on all devices, hosts and CPUs that compute the same bits. The
 * hash is of these bytes:
 *
 *     "lockstep state 2\n"
 *     a JSON object without spaces: {"steps":…,"lr":…,"recipe":{…}} and "\n"; "lr" only if set
 *     for each tensor, first the weights and running statistics, then the optimizer's states:
 *         its name in a checkpoint, " ", the number of its elements in decimal, "\n"
 *         its elements as little-endian fp32
 *
 * The epoch and the step in it follow from the number of steps and the data. Results, such as the
 * losses so far and the best evaluation, are no part of the state: no step reads them.
 *
 * POSITIONS. The chain has an entry for the states after certain numbers of steps. These numbers
 * follow from batch_size alone, never from a clock: multiples of the smallest number of steps, at
 * least 100, that have LS_CHAIN_ROWS rows. After LS_CHAIN_DENSE entries the distance doubles, and
 * again whenever the number of steps has doubled, so that a long run has few entries.
 *
 * COST. With S states of the optimizer for each weight, an entry hashes (1 + S) numbers for each
 * weight. A step reads the weight twice (forward, backward), writes and reads its gradient, and
 * reads and writes the 1 + S numbers: at least 4 + 2(1 + S) numbers. So an entry for every 100 or
 * more steps hashes less than (1 + S) / (100 · (6 + 2S)) < 0.5 % of the bytes that the steps move,
 * even if a minibatch has one row.
 *
 * LINKS. Link number 0 is the SHA-256 of "lockstep chain 1\n" and the hash of the first weights
 * (ls_weights_sha256, as 32 bytes). Link number n is the SHA-256 of link
 * n − 1, the position as 8 little-endian bytes, and the state hash. So the last link fixes all
 * entries before it. */
#ifndef CHECKPOINT_CHAIN_H
#define CHECKPOINT_CHAIN_H

#include "checkpoint/checkpoint.h"
#include "hash/hash.h"

#include <lockstep/status.h>
#include <stdbool.h>
#include <stdint.h>

enum {
    LS_CHAIN_ROWS = 25600, /* fewest rows from one position to the next */
    LS_CHAIN_STEPS = 100,  /* fewest steps from one position to the next */
    LS_CHAIN_DENSE = 32    /* number of entries after which the distance doubles */
};

/* Input of the state hash. */
typedef struct ls_hashed {
    const ls_network *model;
    const ls_config *config;
    int shards; /* number of shards of a minibatch */
    const ls_position *position;
    ls_checkpoint_values values;
} ls_hashed;

/* Computes the state hash. Errors: LS_ENOMEM. Any thread. */
int ls_state_sha256(uint8_t out[LS_SHA256_BYTES], const ls_hashed *state, ls_error *err);

/* Returns the first position of the chain after more than `steps` steps. */
uint64_t ls_chain_next(uint64_t steps, uint32_t batch_size);
/* Returns whether the chain has an entry after `steps` steps. */
bool ls_chain_has(uint64_t steps, uint32_t batch_size);
/* Returns the number of positions up to `steps` steps, inclusive. */
uint32_t ls_chain_count(uint64_t steps, uint32_t batch_size);

/* Computes the SHA-256 of the rows of a dataset as they are decoded: of "lockstep rows 1\n"; of a
 * JSON object without spaces and "\n", {"rows":…,"shape":[channels,height,width],"type":"u8" or
 * "f32","targets":…,"classes":…,"weighted":…}; and then for each row, in order, of its values, its
 * target (a class as an int32_t, or floats) and, if rows have weights, its weight as a float.
 * Numbers are little-endian. Errors: those of ls_dataset_read, LS_ENOMEM. Any thread. */
int ls_rows_sha256(uint8_t out[LS_SHA256_BYTES], const ls_dataset *rows, const ls_host *host,
                   ls_error *err);

/* Appends an entry to `chain`. The caller has made sure that it is the next position's. */
void ls_chain_add(ls_chain *chain, const uint8_t state[LS_SHA256_BYTES]);
/* Computes the link of the last of the first `count` entries. */
void ls_chain_link(uint8_t out[LS_SHA256_BYTES], const ls_chain *chain, uint32_t count,
                   uint32_t batch_size);
/* Computes the link that follows `link` for the entry `state` after `steps` steps; `out` may be
 * `link`. */
void ls_chain_follow(uint8_t out[LS_SHA256_BYTES], const uint8_t link[LS_SHA256_BYTES],
                     uint64_t steps, const uint8_t state[LS_SHA256_BYTES]);

#endif
