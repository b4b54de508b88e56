/* SPDX-License-Identifier: MIT */
/* How far the dependence of values on the rows is from linear. */
#ifndef DATA_CURVE_H
#define DATA_CURVE_H

#include "data/dataset.h"

/* Compares a linear model with one that is the sum of a line and a smooth curve, both ridge
 * regressions, on a sample of the rows. Each row is predicted by a model of the other rows of the
 * sample. Stores which part of the squared errors of the linear model the curve removes: 1: all of
 * them; 0: none, or the rows are not resident, their targets are no values, or there are too few
 * rows or too many numbers in a row. Errors: LS_ENOMEM. */
int ls_curve_measure(double *part, const ls_dataset *ds, const ls_host *host, ls_error *err);

#endif
