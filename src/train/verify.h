/* SPDX-License-Identifier: MIT */
/* Verification of a run (ls_verify in <lockstep/trainer.h>, docs/verify.md).
 *
 * The *claim* is what the prover, the person who trained, says: a receipt, or a config with the
 * weights that came of it. From the claim follows a config; a trainer is opened with it, which
 * reads the data anew, and the training is replayed. At the end the verifier composes the receipt
 * of the replay, and compares it with the prover's member by member. Nothing that a step depends on
 * is taken from the prover's files, apart from the tensors of a checkpoint with which a drawn
 * segment begins, and these are hashed before they are used.
 *
 * A *segment* is the training from one position of the chain (checkpoint/chain.h) to the next.
 * Segment 0 begins with the first weights, and the last one ends with the run. */
#ifndef TRAIN_VERIFY_H
#define TRAIN_VERIFY_H

#include "checkpoint/chain.h"
#include "train/trainer.h"
#include "json/compare.h"

#include <stdio.h>

/* Returns a member of an object; NULL: there is none. */
static inline const cJSON *member(const cJSON *object, const char *key)
{
    return cJSON_GetObjectItemCaseSensitive(object, key);
}

/* ---- the claim (verify_claim.c) ---------------------------------------------------------------
 */

typedef struct ls_claim {
    const ls_host *host;
    char run[LS_PATH_BYTES];     /* directory of the run; "": the claim is a receipt alone */
    char receipt[LS_PATH_BYTES]; /* path of the receipt, for messages; "": there is none */
    char weights[LS_PATH_BYTES]; /* path of the file of weights; "": there is none */
    ls_json *doc;                /* the receipt; NULL: there is none */
    ls_json *own;                /* the run's config.json: recipe and evaluations; NULL */
    ls_json *start;              /* the first record of the run; NULL: there is none */
    char *config;                /* text of the config for a replay */
    const char *library;         /* version of the kernels; NULL: unknown */
    const char *device;          /* product name of the GPU; NULL: none */
    ls_chain chain;              /* the entries, without that of the end */
    uint64_t end;                /* number of steps of the run */
    uint8_t end_state[LS_SHA256_BYTES];
    bool best; /* config.json says that the file of weights has those of the best evaluation */
    char wrong[LS_JSON_PLACE]; /* place of a link that does not follow from the entries; "": none */
} ls_claim;

/* Reads a claim. The caller calls ls_claim_fini, also after an error. Errors: LS_ENOENT, LS_EDATA,
 * LS_ECONFIG, LS_EUNSUPPORTED (no run with such a config can be verified), LS_EIO, LS_ENOMEM. */
int ls_claim_read(ls_claim *out, const ls_verify_options *options, ls_error *err);
void ls_claim_fini(ls_claim *claim);

/* Compares the keys on which steps depend (ls_config_write_hashed). Returns whether they differ;
 * *why then says which key. `recipe`: a node of `doc` with a recipe or a whole config. Errors:
 * none; a recipe that cannot be read differs. */
bool ls_recipes_differ(ls_error *why, const struct ls_trainer *trainer, const ls_json *doc,
                       const cJSON *recipe);

/* ---- records (verify_records.c) ---------------------------------------------------------------
 */

enum { LS_RECORD_KEYS_MOST = 128 }; /* more than ls_record_keys has rows */

/* The comparison of metrics.jsonl with the records of a replay. */
typedef struct ls_records_check {
    const ls_host *host;
    FILE *file; /* NULL: there are no records, or all are read */
    const char *path;
    ls_buffer line; /* the line that was read last */
    int number;     /* its number, from 1 */
    ls_json *doc;   /* the next record that can be compared; NULL: there is none */
    int type;       /* its type */
    uint64_t order; /* its place among the records */
    uint64_t steps; /* number of steps of an epoch */
    uint64_t from;  /* number of steps that were done before the present part of the replay */
    bool whole;     /* the replay is that of the whole training */
    bool skips;     /* earlier records of the file are not replayed, and are passed over */
    /* For each row of ls_record_keys: bit masks of the types of records, 1 << type, of which the
     * file's first record has the key, and lacks it. A file that lacks it was written by a version
     * that does not have it, so other records need not have it either. */
    unsigned has[LS_RECORD_KEYS_MOST], lacks[LS_RECORD_KEYS_MOST];
    char lacking[60];    /* the first key that is lacking, "eval.test_f1"; "": none */
    bool partial;        /* the file begins with the record of a resume: it lacks earlier records */
    char wrong[500];     /* the first difference, a sentence; "": none */
    int wrong_line;      /* line of that difference; 0: a record is missing */
    uint64_t wrong_step; /* step of that record; 0: it is none of a step */
} ls_records_check;

/* Begins the comparison with the file `path`, which must outlive it, if the file exists. */
void ls_check_records_begin(ls_records_check *c, const char *path, uint64_t steps, bool whole,
                            const ls_host *host);
/* Continues after `steps` steps: earlier records are passed over. */
void ls_check_records_from(ls_records_check *c, uint64_t steps);
/* Compares a record of the replay, a text of JSON. */
void ls_check_record(ls_records_check *c, const char *json, size_t length);
/* Notes records that follow the last one of the replay. */
void ls_check_records_end(ls_records_check *c);
void ls_check_records_fini(ls_records_check *c);

#endif
