/* What is in the folders that are packed: classes, and the images of each. Inside of pack.c. */
#ifndef CLI_PACK_LIST_H
#define CLI_PACK_LIST_H

#include "cli/pack.h"
#include "hash/hash.h"

typedef struct cli_names {
    char **name;
    size_t count, room;
} cli_names;

typedef struct cli_entry {
    char *path;
    int32_t label;
} cli_entry;

typedef struct cli_listing {
    cli_entry *entry;
    size_t count, room;
    size_t others; /* files that are no images by their names */
} cli_listing;

typedef struct cli_packing {
    const cli_pack *p;
    const ls_host *host;
    ls_error *err;
    cli_names classes;
    cli_listing split[2];
    bool known_by_state; /* `state` is wanted */
    ls_sha256 state;     /* of names, sizes and times */
    size_t row;          /* bytes of an image */
    uint64_t start, shown;
    size_t done, broken;
} cli_packing;

/* Fills classes and splits, zeroed before, and takes names, sizes and times into `state`. Errors: LS_EDATA,
 * LS_ENOENT, LS_EIO, LS_ENOMEM; what was found is forgotten by its caller. */
int cli_pack_list(cli_packing *k);
void cli_pack_forget(cli_packing *k);

/* Fails for want of memory. */
int cli_pack_no_memory(const cli_packing *k);

#endif
