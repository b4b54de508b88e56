/* What a run's records say, as metrics. */
#ifndef CLI_SERVE_NUMBERS_H
#define CLI_SERVE_NUMBERS_H

#include "http/metrics.h"

#include <lockstep/host.h>

enum {
    NUMBERS_WORKERS = 6,
    NUMBERS_PHASES = 6
}; /* of the first so many workers each has its own */

typedef struct numbers {
    metrics all;
    metric *steps, *rows, *epochs, *loss, *rate, *lr, *test_loss, *test_accuracy, *faults, *skipped;
    metric *phase[NUMBERS_WORKERS][NUMBERS_PHASES], *queued[NUMBERS_WORKERS];
    char labels[NUMBERS_WORKERS * (NUMBERS_PHASES + 1)][48];
} numbers;

void numbers_init(numbers *n); /* zeroed memory */
void numbers_take(numbers *n, const char *json, size_t length, const ls_host *host);

#endif
