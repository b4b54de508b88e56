/* Packs folders of images, which are decoded once, into a safetensors file, which training maps. */
#ifndef CLI_PACK_H
#define CLI_PACK_H

#include "cli/cli.h"
#include "config/config.h"
#include "data/new_rows.h"
#include "hash/hash.h"

enum { CLI_PACK_THREADS = 256 /* limit of the number of threads */ };

typedef struct cli_pack {
    /* Folders of training and test images. test_folder NULL: FOLDER/train and FOLDER/test (or val,
     * valid, validation) are used if they exist. */
    const char *folder, *test_folder;
    int size, channels; /* shape of the converted images */
    int threads;        /* 0: one for each CPU */
    bool skip_broken, quiet;
} cli_pack;

/* If the config of `o` names a folder, packs it into the cache, unless the cache has it with the
 * same names, sizes and times, and appends an assignment to data.packed to `set`; `room` holds its
 * text. Errors: LS_EDATA, LS_ENOENT, LS_EIO, LS_ENOMEM, LS_ECONFIG. Returns LS_OK if there is
 * nothing to do, or if the config is invalid, which its reader will report. */
enum { CLI_PACKED_ROOM = 4200 };
int cli_pack_data(char room[CLI_PACKED_ROOM], cli_list *set, ls_trainer_options *o, bool quiet,
                  ls_error *err);

/* For a run that is resumed with its own config: if the packed file in the cache no longer exists,
 * packs the folder again, or reports what is missing. If the folder or the table was moved together
 * with the run, sets its new path. Errors: those of cli_pack_data. */
typedef struct cli_again {
    char packed[CLI_PACKED_ROOM], path[2][CLI_PACKED_ROOM];
} cli_again;
int cli_find_again(cli_again *room, cli_list *set, ls_trainer_options *o, bool quiet,
                   ls_error *err);
/* Looks for a relative path of a run's data that does not exist here. The directory in which the
 * run was started may be a parent of the run's directory. `config` is the path of the run's config.
 * Returns a copy of the path that was found, which the caller frees, or NULL. */
char *cli_beside_run(const char *path, const char *config, const ls_host *host);

/* Packs the folder of a config `c` again, for rows whose classes are known by name. Stores the path
 * of the packed file, which the caller frees, or NULL if the config's own file is to be used. If
 * the folder does not exist, the config's packed file is used, unless `moved`: the file then
 * belongs to another folder. Errors: those of cli_pack_data, with the place where the images are
 * expected, and the cure. */
int cli_pack_again(char **packed, const ls_config *c, const ls_new_rows *as, bool moved,
                   const char *cache, const ls_host *host, ls_error *err);

/* Decodes the images of a folder into memory. It has a sub-folder for each class, which `as` must
 * know. If it contains train and test (or val, valid, validation), the images of test, or with
 * `train` those of train, are read. Errors: LS_ENOENT, LS_EIO, LS_EDATA (a sub-folder that is not a
 * class; images that cannot be read, which are named on stderr, unless skip_broken),
 * LS_EUNSUPPORTED (the model does not read such images), LS_ENOMEM. */
int cli_read_folder(ls_dataset **out, const ls_new_rows *as, const char *folder, bool train,
                    bool skip_broken, const ls_host *host, ls_error *err);

/* Appends the images in a folder and its sub-folders, sorted, to the first split. The caller calls
 * cli_pack_forget afterwards. Errors: LS_ENOENT, LS_EIO, LS_ENOMEM, LS_EDATA (folders nested too
 * deep). */
struct cli_packing;
int cli_pack_list_all(struct cli_packing *k, const char *folder);
/* Returns whether `path` is a directory, or a symbolic link to one. */
bool cli_is_folder(const char *path);

/* ---- internal: classes and images in the folders (pack_list.c) ------------------------------ */

typedef struct cli_names {
    const char **name;
    size_t count, room;
} cli_names;

typedef struct cli_entry {
    const char *path;
    int32_t label;
    int folder;    /* number of its folder, from 1 on; 0: not known */
    bool is_plain; /* a regular file, not a symbolic link; false: it may be anything */
} cli_entry;

typedef struct cli_texts cli_texts;

typedef struct cli_listing {
    cli_entry *entry;
    size_t count, room;
    size_t others;  /* number of files whose names are not those of images */
    size_t foreign; /* number of images of formats that are not supported */
    size_t deeper;  /* number of images in sub-folders of their class's folder */
} cli_listing;

/* Remarks about a folder, each a sentence. */
enum { CLI_REMARKS = 12 };
typedef struct cli_remarks {
    char text[CLI_REMARKS][400];
    int count;
} cli_remarks;

typedef struct cli_packing {
    const cli_pack *p;
    const ls_host *host;
    ls_error *err;
    cli_texts *texts; /* memory of paths and names */
    cli_names classes;
    bool fixed; /* `classes` is complete: other names are errors */
    cli_listing split[2];
    int folders; /* number of folders that were listed */
    cli_remarks remarks;
    bool known_by_state; /* `state` is computed */
    ls_sha256 state;     /* covers names, sizes and times */
    size_t row;          /* size of an image in bytes */
    uint64_t start, shown;
    size_t done, broken, turned;
} cli_packing;

/* Adds a remark, unless there are CLI_REMARKS already. */
void cli_pack_remark(cli_packing *k, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* Fills the zeroed classes and splits, and adds names, sizes and times to `state`. The caller calls
 * cli_pack_forget afterwards, also after a failure. Errors: LS_EDATA, LS_ENOENT, LS_EIO,
 * LS_ENOMEM. */
int cli_pack_list(cli_packing *k);
/* Frees the memory of a packing. */
void cli_pack_forget(cli_packing *k);

/* Fails with LS_ENOMEM. */
int cli_pack_no_memory(const cli_packing *k);

/* Marks the file `name` in the cache as used now. Then removes the packed files that were least
 * recently used, but never `name`, until all packed files together have at most `most` bytes. Each
 * removed file is named on stderr. A file that cannot be removed is left. */
void cli_cache_bound(const char *cache, const char *name, uint64_t most);

/* ---- internal: decoding on all cores (pack_crew.c) ------------------------------------------ */

enum { CLI_NAMED = 20 /* limit of the broken images that are named */ };

/* Consecutive images that one thread has decoded. */
typedef struct cli_chunk {
    const cli_entry *entry;
    size_t count;
    /* ready: the chunk is decoded; ends_block: it is the last chunk of a block, after which broken
     * images end the packing */
    bool ready, ends_block;
    uint8_t *pixels;
    char *failed; /* [count]: the image cannot be read */
    /* number of images that were rotated as their EXIF orientation says */
    size_t turned;
    uint64_t sum[3], squares[3]; /* sums over the samples of each channel */
    ls_error why[CLI_NAMED];
    size_t broken;
} cli_chunk;

typedef struct cli_crew cli_crew;

/* Creates the threads' common state, the crew. Errors: LS_ENOMEM. The caller frees *out, also after
 * a failure. */
int cli_crew_make(cli_crew **out, cli_packing *k);
/* Frees the crew. NULL is allowed. No thread may be decoding. */
void cli_crew_free(cli_crew *w);

/* Callback that receives a decoded chunk. A failure stops the decoding. */
typedef int cli_take(void *user, const cli_chunk *c);

/* Decodes the images of the list in chunks, on the caller's and other threads. Passes the chunks to
 * `take` in the order of the list, one at a time, each on one of these threads. Returns the failure
 * of `take`, if any. */
int cli_crew_run(cli_crew *w, const cli_listing *list, cli_take *take, void *user);

#endif
