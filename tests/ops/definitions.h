/* The ops as textbooks define them, in double and with no thought of speed: what the reference
 * back end itself is checked against. Arrays are row-major; nothing is shared with its loops. */
#ifndef OPS_DEFINITIONS_H
#define OPS_DEFINITIONS_H

#include <lockstep/plugin.h>

/* What `desc` computes from x and the parameters (bias NULL: none): y, or for softmax_xent the
 * summed loss as y[0]. Returns the number of values. Conv2d, dense, pool, relu, softmax_xent;
 * fused forms included. */
size_t define(double *y, const ls_op_desc *desc, const double *x, const double *weight,
              const double *bias, const uint8_t *labels);

#endif
