/* The journal: every example that was accepted, in order, in one file that only grows. It is memory
 * of the service and queue of the training in one: what lies before the position `trained` has been
 * trained on and may be replayed, what lies behind it waits.
 *
 * An example is a target and a row (example.h). On the disk a record adds a checksum over
 * its number and the example. What the disk has damaged stays in its place and is refused when it is read.
 * Behind the last example that is whole, and that a save is known to have seen, damage and what a crash left
 * half-written look alike: there the end is cut off, and its bytes are kept in a file beside the journal.
 *
 * Any thread may call these functions, except open and close.
 */
#ifndef SERVICE_JOURNAL_H
#define SERVICE_JOURNAL_H

#include "example.h"

#include <lockstep/status.h>

typedef struct journal journal;

typedef struct journal_options {
    const char *path; /* copied */
    example_form form;
    uint64_t most;  /* examples in the file */
    uint64_t queue; /* examples that may wait for training */
    uint64_t known; /* so many were on the disk once: a save has seen them */
} journal_options;

typedef struct journal_state {
    uint64_t durable; /* examples on the disk */
    uint64_t trained; /* how many of them, from the first, training has seen */
    uint64_t syncs;   /* so often was the disk asked to keep what it got */
    uint64_t cut;     /* examples that were cut off when it was opened */
    int failed;       /* errno: the disk has failed, and nothing more is accepted */
    int refusing;     /* errno: examples cannot be written now; on a full disk, say */
    double silent_s;  /* how long the disk has been asked for something that it has not done yet */
} journal_state;

/* Opens or makes the file, locks it for this process, and finds its end. A damaged header is written again
 * where there is an example that is whole, and what is missing of the known examples is made up for by damaged
 * ones. Errors: LS_EIO, LS_EAGAIN (another process uses it), LS_EDATA (not such a file, or of other examples), LS_ENOMEM. */
int journal_open(journal **out, const journal_options *options, ls_error *err);
void journal_close(journal *j); /* NULL is allowed */

/* Appends `n` examples, [n][example_bytes], and returns when they are on the disk; calls that come
 * together share one wait for it. Errors: LS_EAGAIN (too many wait), LS_ENOMEM (the file is as large
 * as it may get, or the disk is full), LS_EIO (the disk fails; from then on always). Nothing of a
 * refused call is trained on, except behind LS_EIO, where that is not known. */
int journal_append(journal *j, const uint8_t *examples, uint32_t n, ls_error *err);

/* Reads example `index`, which is durable: target and row, and JOURNAL_EXTRA bytes that mean nothing
 * to the caller. Errors: LS_EDATA (damaged), LS_EIO. */
enum { JOURNAL_EXTRA = 4 };
int journal_read(const journal *j, uint64_t index, uint8_t *example, ls_error *err);

void journal_set_trained(journal *j, uint64_t position);
void journal_look(journal *j, journal_state *out); /* never waits for the disk */

/* Now and then: looks whether there is room for examples, so that journal_look can tell. */
void journal_watch(journal *j);

/* Returns when more than `known` examples are durable, after journal_wake, or when so many
 * milliseconds have passed. */
void journal_wait(journal *j, uint64_t known, int milliseconds);
void journal_wake(journal *j);

#endif
