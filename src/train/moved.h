/* SPDX-License-Identifier: MIT */
/* Moves trained weights into a network whose inputs and outputs are partly others, or in another
 * order. */
#ifndef TRAIN_MOVED_H
#define TRAIN_MOVED_H

#include "nn/network.h"

#include <lockstep/host.h>
#include <stdbool.h>

/* Origin of an input or an output of the new network in the old one. */
typedef struct ls_origin {
    int index; /* index of the input or output in the old network; −1: it has none */
    /* The old network's input is factor · input + shift of the new one; the new network's output is
     * factor · output + shift of the old one. */
    double factor, shift;
} ls_origin;

typedef struct ls_move {
    const ls_network *from, *to;
    const float *old; /* canonical weights of `from` */
    float *weights;   /* canonical weights of `to`: on entry, its initial weights */
    /* [to->input.c], for rows without height and width; NULL: the inputs are the same */
    const ls_origin *input;
    const ls_origin *output; /* [to->classes]; NULL: the outputs are the same */
    bool partial;            /* tensors that do not fit keep their initial weights */
    const char *path;        /* path of the old weights, for messages */
    const ls_host *host;
} ls_move;

/* Moves the weights tensor by tensor, by the names of the tensors. A layer that reads the row, or
 * computes the outputs, gets the weights of each input and output from where they are in the old
 * network, scaled so that the new network computes the same from the same rows. The weights of an
 * input without an origin become 0, so that it has no effect at first; those of an output without
 * one keep their initial values. An activation between the row and a layer prevents scaling, and so
 * does one after the last layer; a line in the log says so. Errors: LS_EDATA (a tensor is missing
 * or has another shape; a layer mixes the row, or the outputs, in a way that is not followed, such
 * as by a convolution), LS_ENOMEM. */
int ls_move_weights(const ls_move *move, ls_error *err);

#endif
