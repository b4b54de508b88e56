/* Scenarios: small training runs over the doubles with one worker. Each run counts what a step
 * enqueues. It is repeated with all steps taken *in parts*, that is op by op and not as one graph.
 * A planned stall of zero seconds in each step forces that. */
#ifndef TESTS_CUDA_OPS_STORIES_H
#define TESTS_CUDA_OPS_STORIES_H

#include "train/train_fixture.h"

/* STORY_STEPS: number of steps of two epochs with the config of story_begin. STORY_LOSSES: number
 * of losses that a run stores. */
enum { STORY_STEPS = 8, STORY_LOSSES = 64 };

/* Result of a run. */
typedef struct story {
    int status, skipped, steps;
    long launches, waits;
    char text[512];
    double loss[STORY_LOSSES];
    float *arena[3]; /* weights with running statistics; two arenas of the optimizer's state */
    size_t floats, tail;
} story;

/* Sets up a device `doubled:0` and minibatches of 8 rows; the last minibatch of an epoch is
 * smaller. With `parts`, the first LS_INJECTIONS_MAX steps are taken in parts. */
void story_begin(fixture *f, int parts);
void story_tell(story *s, fixture *f);
/* Runs the training that `set_up` prepares. */
void story_tell_of(story *s, void (*set_up)(fixture *f));
void story_forget(story *s);

/* Runs a network twice, with whole steps and with steps in parts. `sets`: config assignments,
 * NULL-terminated. Each argument may be NULL. */
void story_both(story *whole, story *parts, void (*net)(fixture *f), const char *const *sets);
void story_expect_same(const story *a, const story *b);

/* Networks. A convolution, SGD. */
void story_convolution(fixture *f);
/* Convolution, batch norm, dropout, AdamW, augmentation. */
void story_residual(fixture *f);
/* Many layers, whose products soon overflow. */
void story_deep(fixture *f);
/* Huge weights, and dark images except for some bright ones, whose loss is not finite;
 * on_nonfinite=skip. */
void story_bright_rows(fixture *f, int streamed);

/* Ends the doubles, which must find no violation and no leak, and begins them again without planned
 * failures. */
void story_another_world(void);
/* Makes each of the functions `calls` (NULL-terminated) fail in turn: in each run one call fails,
 * from the first to the `most`-th. The run must end with an error or continue, within a time limit
 * and without leaks. A run that continues must have the same bits as a run without failures.
 * Returns the number of runs that continued. */
int story_fail_in_turn(void (*set_up)(fixture *f), const char *const *calls, int most);

#endif
