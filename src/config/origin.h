/* SPDX-License-Identifier: MIT */
/* A trained network with which training is to begin: `trainer init DATA --from FILE`. */
#ifndef CONFIG_ORIGIN_H
#define CONFIG_ORIGIN_H

#include "nn/network.h"
#include "prep/resize.h"

#include <lockstep/status.h>
#include <stdbool.h>

/* Facts about the file, and the parts of a config that begin with it. */
typedef struct ls_origin {
    const ls_host *host;
    char *model; /* JSON text of the config's key `model`, with a new last layer; owned */
    /* the config's key `init.weights`, the path given to ls_origin_read; NULL: `model` names the
     * file */
    const char *weights;
    ls_shape input;     /* shape of a row */
    bool open;          /* the file leaves the shape open, and `side` was taken */
    int layers;         /* number of layers */
    char head[64];      /* name of the last layer, which begins anew */
    int outputs;        /* number of outputs that the file's network has */
    size_t taken, left; /* number of weights that are taken over, and of those that are not */
    char licence[120];  /* licence of the weights; "": the file does not say it */
    bool norms;         /* it has batch norms, with running statistics */
    /* How bytes become rows: the scale of each channel of bytes / 255 (`scales` false: not known),
     * and for images the size to which pictures are resized before their centre is cut out (all 0:
     * data.image_size, the row's height). `guessed`: the file does not say it; this is the rule of
     * ImageNet's networks, for three channels. */
    bool scales, guessed;
    float mean[4], std[4];
    ls_prep_resize resize;
    const char *pictures; /* value of data.pictures that stands for all this; NULL: none does */
} ls_origin;

/* Reads an ONNX file, or a safetensors file that a run has written. `side`: height and width of a
 * row of an ONNX file that leaves them open. `named`: the path of the file as the config names it.
 * `set` [count]: the user's assignments "KEY=VALUE", of which model.output and model.input decide
 * what is read of an ONNX file. The caller frees *out with ls_origin_fini, also after a failure.
 * Errors: those of ls_onnx_import, ls_json_set and ls_card_load; LS_ECONFIG for a wrong value;
 * LS_EUNSUPPORTED if the network of a safetensors file is not known, or has no last layer that can
 * be replaced. */
int ls_origin_read(ls_origin *out, const char *path, const char *named, int side,
                   const char *const *set, int count, const ls_host *host, ls_error *err);
/* Frees the texts. A zeroed origin is allowed. */
void ls_origin_fini(ls_origin *origin);

#endif
