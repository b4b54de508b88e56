/* What the next step is trained on: examples that wait, in their order, and a replay of older ones.
 *
 * While there is little to replay a minibatch is all new; later at most half of it is, because whoever
 * sends examples often sends them sorted, and a network forgets. The draw is a function of the step's
 * number alone. */
#ifndef SERVICE_BATCH_H
#define SERVICE_BATCH_H

#include "journal.h"

typedef struct batch {
    uint32_t rows;
    example_form form;
    uint8_t *values;       /* [rows][row_bytes] */
    void *targets;         /* int32_t [rows], or float [rows][targets] */
    uint8_t *example;      /* room for one that is read */
    uint8_t *bad;          /* a bit for each example: it is known to be damaged */
    uint64_t room, looked; /* examples that have a bit; how many of the first were looked at */
    uint64_t damaged;      /* bits that are set */
} batch;

int batch_init(batch *b, uint32_t rows, const example_form *form, ls_error *err);
void batch_fini(batch *b);

/* Fills it for step number `step`. *position is how far training has come, and is moved over the new
 * examples; damaged ones are left out. Errors: LS_EAGAIN (it has found too many damaged ones to go on at once:
 * nothing is filled, and they are known now; or no example is whole), LS_EIO, LS_ENOMEM. */
int batch_fill(batch *b, journal *from, uint64_t step, uint64_t *position, ls_error *err);

/* Looks at up to `most` examples that were not looked at, so that all damaged ones are known in the end. Returns
 * how many it was. Errors are told by who needs the examples. */
uint32_t batch_look(batch *b, journal *from, uint32_t most);

#endif
