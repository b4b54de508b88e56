/* SPDX-License-Identifier: MIT */
/* Choosing among *candidates*, a library's implementations of one product, by measurement.
 *
 * Of the candidates that are as exact as the number format allows, and give the same bits in every
 * run, the fastest is chosen. cuDNN's notes on algorithms and on determinism, which have proved
 * wrong, do not decide.
 *
 * Error. The product is computed for operands of three kinds: uniform between −1 and 1; as after a
 * relu (one half of the numbers is 0, the mean is not); and with rows that differ by powers of two.
 * 64 of its outputs (*samples*) are compared with sums in double. The error of an output is its
 * distance from the exact sum, divided by the sum of the magnitudes of all terms. The *yardstick*
 * is the error (root mean square over the samples) of the best candidate that adds term by term,
 * or, if it is larger, the error that number format and tensor cores make unavoidable. A candidate
 * is exact enough if its error is at most 4 times the yardstick, and no sample's error more than 16
 * times, for each kind.
 *
 * Bits. Four runs must give the same bits, although workspace and output have different contents
 * before each run. Two of them run beside a kernel on half of the multiprocessors, because the
 * order in which thread blocks finish differs then.
 *
 * Time. A CUDA graph with 16 runs is launched, so that the time to enqueue a run does not count.
 * Each candidate has two launches, and the best six have ten more. Copies into another layout that
 * a candidate makes are part of its runs, and so of its time. */
#ifndef CUDA_MATH_TUNE_H
#define CUDA_MATH_TUNE_H

#include "cuda/math/inside.h"

enum { LS_TUNE_KINDS = 3 /* kinds of operands */, LS_TUNE_SAMPLES = 64 };

/* Errors of the samples for one kind of operands. */
typedef struct ls_tune_error {
    double rms, worst;
} ls_tune_error;

/* A candidate and what was measured. */
typedef struct ls_tune_result {
    char name[64];
    size_t workspace_bytes;
    bool simple; /* it adds term by term; its error belongs to the yardstick */
    float ms;    /* time of a run in milliseconds; negative: it does not run */
    ls_tune_error error[LS_TUNE_KINDS];
    const char *refused; /* reason why it may not be used; NULL: none is known */
} ls_tune_result;

/* Measures `count` candidates of a plan and fills all fields of `result` after `simple`. `take`
 * makes the plan run candidate i. Returns the index of the chosen candidate; −1 if none may be
 * used; LS_TUNE_NO_MEMORY if there is not enough memory to measure. Thread: the plan's. */
int ls_tune(ls_tune_result *result, int count, ls_math_inside *plan,
            void (*take)(ls_math_inside *plan, int i));
enum { LS_TUNE_NO_MEMORY = -2 };

/* ---- the parts, for tests -------------------------------------------------------------------- */

/* Sets `refused` of each candidate whose error is too large. unavoidable: the error of the number
 * format for each kind of operands. */
void ls_tune_judge(ls_tune_result *result, int count, const double unavoidable[LS_TUNE_KINDS]);

#endif
