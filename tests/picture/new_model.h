/* SPDX-License-Identifier: MIT */
/* Creates an untrained model for rows of any shape. */
#ifndef TESTS_PICTURE_NEW_MODEL_H
#define TESTS_PICTURE_NEW_MODEL_H

#include <lockstep/model.h>

/* Returns a model, which the caller releases, or NULL with the reason in `err`. */
ls_model *new_model(int channels, int height, int width, int floats, ls_error *err);

#endif
