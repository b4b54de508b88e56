/* SPDX-License-Identifier: MIT */
/* Facts about a run in progress that the program shows, beyond <lockstep/trainer.h>: its records as
 * structures, the layers of its model, the accuracy from which it begins, and its newest
 * checkpoint. */
#ifndef TRAIN_SHOWN_H
#define TRAIN_SHOWN_H

#include "nn/network.h"
#include "records/sink.h"

#include <lockstep/trainer.h>

/* Adds a sink. The trainer closes the sink at the end of the run, or this function closes it if it
 * fails. Errors: LS_EINVAL (too many sinks). */
int ls_trainer_attach(ls_trainer *trainer, ls_sink *sink, ls_error *err);

/* A layer of the trainer's model. The texts belong to the model. */
typedef struct ls_shown_layer {
    const char *name, *type;
    ls_shape out;
    size_t parameters; /* number of parameters */
    /* The layer computes with parameters. Batch norm does not count, although it has parameters:
     * it belongs to the layer before it. */
    bool is_main;
} ls_shown_layer;

/* Returns the shape of a row. */
ls_shape ls_trainer_input(const ls_trainer *trainer);
/* Returns the number of layers. */
int ls_trainer_layers(const ls_trainer *trainer);
/* Returns layer `i`, counted from 0. */
ls_shown_layer ls_trainer_layer(const ls_trainer *trainer, int i);

/* Returns the accuracy of random guesses, 1 / classes, if the run begins with small random weights,
 * as in the book "Dive into Deep Learning", because its network guesses at first; else 0. *std: the
 * standard deviation of these weights. */
double ls_trainer_chance(const ls_trainer *trainer, double *std);

/* Finds the newest checkpoint in the directory of a run that was not set aside: its steps, and the
 * time at which it was saved, in seconds since 1970. Returns false if there is none. */
bool ls_newest_checkpoint(uint64_t *steps, double *saved, const char *run_dir);

#endif
