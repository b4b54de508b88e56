/* Small training runs over the doubles on one worker. Each run lists what a step enqueues. It is
 * repeated with all steps taken in parts, which is forced by planning something for each of them (a
 * stall of zero seconds). */
#ifndef TESTS_CUDA_OPS_STORIES_H
#define TESTS_CUDA_OPS_STORIES_H

#include "train/train_fixture.h"

/* Steps of two epochs of story_begin's recipe; number of losses that a run remembers. */
enum { STORY_STEPS = 8, STORY_LOSSES = 64 };

/* Result of a run. */
typedef struct story {
    int status, skipped, steps;
    long launches, waits;
    char text[512];
    double loss[STORY_LOSSES];
    float *arena[3]; /* weights and running statistics, and the optimizer's state */
    size_t floats, tail;
} story;

/* Sets up a device `doubled:0` and minibatches of 8, of which the last of an epoch is smaller. Only
 * the first LS_INJECTIONS_MAX steps can be taken in parts. */
void story_begin(fixture *f, int parts);
void story_tell(story *s, fixture *f);
/* Runs everything that `set_up` begins. */
void story_tell_of(story *s, void (*set_up)(fixture *f));
void story_forget(story *s);

/* Runs a network with assignments both ways. `sets` is NULL-terminated; each argument may be
 * NULL. */
void story_both(story *whole, story *parts, void (*net)(fixture *f), const char *const *sets);
void story_expect_same(const story *a, const story *b);

/* Networks. A convolution, SGD. */
void story_convolution(fixture *f);
/* Convolution, batch norm, dropout, AdamW, augmentation. */
void story_residual(fixture *f);
/* Products of many weights, which soon overflow. */
void story_deep(fixture *f);
/* Huge weights, and dark images except for some bright ones, whose loss is not finite;
 * on_nonfinite=skip. */
void story_bright_rows(fixture *f, int streamed);

/* Ends the doubles, which must find nothing wrong and nothing left over, and begins them again
 * without rules. */
void story_another_world(void);
/* Lets each of the calls (NULL-terminated) fail in turn, up to its `most`-th in a run. The run must
 * end with an error or continue, in time, and leave nothing over; if it continues it must reach
 * the bits of an undisturbed run. Returns the number of runs that continued after a fault. */
int story_fail_in_turn(void (*set_up)(fixture *f), const char *const *calls, int most);

#endif
