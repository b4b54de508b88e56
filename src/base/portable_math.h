/* Functions of the C library that decide bits: written out, since every libm rounds them in its own way, so that a
 * run has the same bits with any. Sums, products, quotients and roots of doubles alone, which are the same
 * everywhere; errors are below one and a half units in the last
 * place. Any thread may call them. */
#ifndef BASE_PORTABLE_MATH_H
#define BASE_PORTABLE_MATH_H

#include <stdint.h>

/* eˣ; 0 below −708, ∞ above 709. */
double ls_exp(double x);

/* ln x of a normal x > 0. */
double ls_ln(double x);

/* ln(1 + x), 0 ≤ x ≤ 1. */
double ls_log1p(double x);

/* cos x, |x| ≤ 1000. */
double ls_cos(double x);

/* xⁿ by squaring. */
double ls_power(double x, uint64_t n);

#endif
