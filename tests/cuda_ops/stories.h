/* Small training runs over the doubles on one worker. Each run lists what a step enqueues. It is
 * repeated with all steps taken in parts, which is forced by planning something for each of them (a
 * stall of zero seconds). */
#ifndef TESTS_CUDA_OPS_STORIES_H
#define TESTS_CUDA_OPS_STORIES_H

#include "train/train_fixture.h"

/* Steps of two epochs of what story_begin sets up; losses that a story remembers. */
enum { STORY_STEPS = 8, STORY_LOSSES = 64 };

/* What a run came to. */
typedef struct story {
    int status, skipped, steps;
    long launches, waits;
    char text[512];
    double loss[STORY_LOSSES];
    float *arena[3]; /* weights and running statistics, the optimizer's state */
    size_t floats, tail;
} story;

/* A device `doubled:0`, minibatches of 8 of which the last of an epoch is a small one. Only the first
 * LS_INJECTIONS_MAX steps can be taken in parts. */
void story_begin(fixture *f, int parts);
void story_tell(story *s, fixture *f);
/* All of a run that `set_up` begins. */
void story_tell_of(story *s, void (*set_up)(fixture *f));
void story_forget(story *s);

/* Both ways: with a net and assignments, NULL-terminated; each may be NULL. */
void story_both(story *whole, story *parts, void (*net)(fixture *f), const char *const *sets);
void story_expect_same(const story *a, const story *b);

/* Nets. A convolution, SGD. */
void story_convolution(fixture *f);
/* Convolution, batch norm, dropout, AdamW, augmentation. */
void story_residual(fixture *f);
/* Products of many weights, which soon overflow. */
void story_deep(fixture *f);
/* Huge weights, and dark images but for some bright ones, whose loss is no number; on_nonfinite=skip. */
void story_bright_rows(fixture *f, int streamed);

/* Fails unless nothing was wrong or is left over; then there is no rule either. */
void story_another_world(void);
/* Each of the calls, NULL-terminated, fails in turn, up to its `most`-th of a run: that ends with an error
 * or goes on, in time, leaves nothing behind, and when it goes on, comes to the bits of one that was not
 * disturbed. Returns how many went on behind a fault. */
int story_fail_in_turn(void (*set_up)(fixture *f), const char *const *calls, int most);

#endif
