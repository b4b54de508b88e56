/* SPDX-License-Identifier: MIT */
/* Mathematical functions whose results have the same bits on every system, unlike those of libm.
 * They use only sums, products and quotients of doubles. Their errors are below 1.5 units in the
 * last place. Any thread. */
#ifndef BASE_PORTABLE_MATH_H
#define BASE_PORTABLE_MATH_H

#include <stdint.h>

/* Returns eˣ; 0 for x < −708, ∞ for x > 709, NaN for NaN. */
double ls_exp(double x);

/* Returns ln x for a normal x > 0. */
double ls_ln(double x);

/* Returns ln(1 + x) for 0 ≤ x ≤ 1. */
double ls_log1p(double x);

/* Returns cos x for |x| ≤ 1000. */
double ls_cos(double x);

/* Returns xⁿ, computed by repeated squaring. */
double ls_power(double x, uint64_t n);

#endif
