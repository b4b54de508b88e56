/* The reading of one model: what model.c, read_layer.c and blocks.c pass around. One thread. */
#ifndef NN_READER_H
#define NN_READER_H

#include "nn/model.h"
#include "json/fields.h"

/* Where layers are being read: the model's own list, or one copy of a block. */
typedef struct ls_scope {
    char prefix[80];  /* of the layers' names: "", or "b2.0." */
    int first;        /* the first layer of the scope */
    int input;        /* what "input" stands for, and the first layer's predecessor */
    const cJSON *use; /* the object that uses the block, NULL in the model's own list */
} ls_scope;

/* Where a layer stands in the text. */
typedef struct ls_layer_place {
    const cJSON *node, *use;
} ls_layer_place;

/* The name of a block's use stands for the last layer it wrote. */
typedef struct ls_block_name {
    char name[64];
    int layer;
} ls_block_name;

typedef struct ls_reader {
    ls_model *model; /* its `layers` counts those read so far */
    const ls_json *doc;
    const cJSON *blocks;   /* the object of blocks, or NULL */
    ls_layer_place *place; /* of each layer */
    ls_block_name *block;  /* room for one per use */
    int block_names;
    ls_error *err;
} ls_reader;

/* ---- read_layer.c --------------------------------------------------------------------------- */

/* Reads the next layer from `node`, the copy of `origin` that a block's use has filled in, or
 * `origin` itself. `position` is its place in its list. Errors: LS_ECONFIG, with the place. */
int ls_read_layer(ls_reader *r, const ls_scope *scope, int position, const cJSON *node,
                  const cJSON *origin);

/* "name" of a layer or a use, else its position. Errors go to the fields. */
void ls_read_name(const ls_reader *r, const ls_scope *scope, ls_fields *f, int position,
                  char full[64]);

/* Resolves what `key` names: an earlier layer of the scope, or "input". */
int ls_read_reference(const ls_reader *r, const ls_scope *scope, ls_fields *f, const char *key,
                      int fallback);

/* LS_ECONFIG at a layer's place: "FILE:LINE:COLUMN: text", and for a block's layer where the block
 * is used. */
int ls_fail_at_layer(const ls_reader *r, ls_layer_place place, int status, const char *text);

/* ---- blocks.c ------------------------------------------------------------------------------- */

/* Checks that `blocks` is an object of lists, each of which is used in `list`. */
int ls_check_blocks(const ls_reader *r, const cJSON *list);

/* How many layers a member of the list stands for; a wrong use counts as one. */
int ls_count_layers(const ls_reader *r, const cJSON *node);

/* Writes out {"block": …}: all layers of all its repetitions. */
int ls_read_block(ls_reader *r, const ls_scope *outer, int position, const cJSON *node);

#endif
