/* SPDX-License-Identifier: MIT */
/* State while a model is parsed, shared by model.c, read_layer.c and blocks.c. Only one thread uses
 * it. A use of a block can ask for several *repetitions*, which are copies of the block's layers
 * one after another (the key "repeat"; blocks.c). */
#ifndef NN_READER_H
#define NN_READER_H

#include "nn/network.h"
#include "json/fields.h"

/* The list of layers that is being read: the model's own list, or one repetition of a use of a
 * block. */
typedef struct ls_scope {
    char prefix[80]; /* prefix of the layers' names: "", or "b2.0." */
    int first;       /* index of the first layer of the scope */
    /* layer that the name "input" stands for; by default the first layer of the scope reads this
     * layer */
    int input;
    const cJSON *use; /* object that uses the block; NULL in the model's own list */
} ls_scope;

/* The position of a layer in the JSON text: its object, and for a layer of a block the object that
 * uses the block (otherwise NULL). */
typedef struct ls_layer_place {
    const cJSON *node, *use;
} ls_layer_place;

/* The name of a use of a block. As the input of a layer, the name stands for the last layer of the
 * use. */
typedef struct ls_block_name {
    char name[64];
    int layer;
} ls_block_name;

typedef struct ls_reader {
    ls_network *model; /* model->layers is the number of layers read so far */
    const ls_json *doc;
    const cJSON *blocks;   /* the object "blocks", or NULL */
    ls_layer_place *place; /* position of each layer */
    /* [block_names] names of the uses read so far; its capacity is the number of entries of the
     * model's own list */
    ls_block_name *block;
    int block_names;
    bool keys_only; /* the input is not known: no shapes are computed or checked */
    ls_error *err;
} ls_reader;

/* ---- read_layer.c --------------------------------------------------------------------------- */

/* Reads the next layer from `node`. `origin` is the layer's object in the JSON text. `node` is
 * `origin` itself or, for a layer of a block, a copy of `origin`, in which each placeholder, such
 * as "$out", is replaced by the use's value. `position`: index of the layer in its list. Errors:
 * LS_ECONFIG, with the position in the text. */
int ls_read_layer(ls_reader *r, const ls_scope *scope, int position, const cJSON *node,
                  const cJSON *origin);

/* Reads the "name" of a layer or of a use. Writes the scope's prefix and the name to `full`. The
 * default name is the position in the list. Errors are stored in `f`. */
void ls_read_name(const ls_reader *r, const ls_scope *scope, ls_fields *f, int position,
                  char full[64]);

/* Returns the layer that `key` names: an earlier layer of the scope, or the scope's input for
 * "input". Returns `fallback` if the key is absent. Errors are stored in `f`. */
int ls_read_reference(const ls_reader *r, const ls_scope *scope, ls_fields *f, const char *key,
                      int fallback);

/* Reports an error at a layer's position, "FILE:LINE:COLUMN: text", and for a layer of a block also
 * the position where the block is used. Returns `status`. */
int ls_fail_at_layer(const ls_reader *r, ls_layer_place place, int status, const char *text);

/* ---- blocks.c ------------------------------------------------------------------------------- */

/* Checks that r->blocks is an object of lists, each of which is used in `list`. Errors:
 * LS_ECONFIG. */
int ls_check_blocks(const ls_reader *r, const cJSON *list);

/* Returns the number of layers that an entry of a list of layers stands for. The number is 1 for a
 * layer, and also for a use of an unknown block. */
int ls_count_layers(const ls_reader *r, const cJSON *node);

/* Reads a use {"block": …}: all layers of all its repetitions. Errors: LS_ECONFIG, LS_ENOMEM. */
int ls_read_block(ls_reader *r, const ls_scope *outer, int position, const cJSON *node);

#endif
