/* What the next step is trained on: examples that wait, in their order, and a replay of older ones.
 *
 * While there is little to replay a minibatch is all new; later at most half of it is, because whoever
 * sends examples often sends them sorted, and a network forgets. The draw is a function of the step's
 * number alone. */
#ifndef SERVICE_BATCH_H
#define SERVICE_BATCH_H

#include "journal.h"

#include <stddef.h>

typedef struct batch {
    uint32_t rows;
    size_t image_bytes;
    uint8_t *images, *labels; /* [rows][image_bytes], [rows] */
    uint8_t *example;         /* room for one that is read */
    uint64_t damaged;         /* examples that could not be used, since the start */
} batch;

int batch_init(batch *b, uint32_t rows, size_t image_bytes, ls_error *err);
void batch_fini(batch *b);

/* Fills it for step number `step`. *position is how far training has come, and is moved over the new
 * examples. At least `rows` examples are durable. Errors: LS_EIO, LS_EDATA (too many are damaged). */
int batch_fill(batch *b, journal *from, uint64_t step, uint64_t *position, ls_error *err);

#endif
