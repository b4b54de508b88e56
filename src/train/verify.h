/* Verification of a run by its receipt (docs/verify.md): opens the data again, and replays segments
 * of the training on the devices that there are. A *segment* is the training from one position of
 * the chain (checkpoint/chain.h) to the next; segment 0 begins with the first weights, and the last
 * one ends with the run.
 *
 *     ls_verify_options o = {.run = "runs/x", .trainer = &options, .segments = 3, .seed = drawn};
 *     ls_verdict verdict;
 *     int status = ls_verify(&verdict, &o, &err);
 *     if (status == LS_OK && !verdict.holds)
 *         puts(verdict.text);
 *
 * The seed must be drawn after the receipt is fixed, by the verifier. */
#ifndef TRAIN_VERIFY_H
#define TRAIN_VERIFY_H

#include <lockstep/status.h>
#include <lockstep/trainer.h>
#include <stdbool.h>
#include <stdint.h>

typedef struct ls_verify_options {
    const char *run; /* directory with config.json, receipt.json, weights and checkpoints */
    /* registry, places of data and assignments such as devices=cpu:2; its config, callbacks and
     * resume are not used */
    const ls_trainer_options *trainer;
    bool all;      /* every segment is replayed */
    int segments;  /* otherwise: number of segments besides the first and the last */
    uint64_t seed; /* of the draw of these segments */
    /* Called before each replay; NULL: nobody is told. `done` of `count` segments are replayed. */
    void (*progress)(void *user, int done, int count, uint64_t from, uint64_t to);
    void *user;
} ls_verify_options;

/* The result of a verification. */
typedef struct ls_verdict {
    bool holds; /* nothing differs from the receipt */
    int segments, replayed;
    int segment;       /* index of the segment that differs; −1: none, or another part differs */
    uint64_t from, to; /* steps done before and after that segment */
    char text[600];    /* a sentence about the result */
    char weights_sha256[65]; /* of the run's last weights, by the receipt */
} ls_verdict;

/* Verifies a run. A difference is no error: *out says what differs. Errors: LS_ENOENT and LS_EDATA
 * (no receipt, or none that can be read), and those of ls_trainer_open. */
int ls_verify(ls_verdict *out, const ls_verify_options *options, ls_error *err);

#endif
