/* Packing: decodes the images of a folder once, scales them to the model's input, and writes them
 * to a safetensors file, the packed file. Training maps this file instead of decoding images in
 * every run. `trainer pack` writes a packed file where the user wants it; training writes one to
 * the cache directory.
 *
 * The *state* of a folder is a hash of its path and of the names, sizes and times of its images.
 * The name of a packed file in the cache depends on the state and on the form of the converted
 * images, so a changed folder is packed again. */
#ifndef CLI_PACK_H
#define CLI_PACK_H

#include "cli/cli.h"
#include "config/config.h"
#include "data/new_rows.h"
#include "hash/hash.h"

enum { CLI_PACK_THREADS = 256 /* limit of the number of threads */ };

/* Options of `trainer pack`: the images and their form. */
typedef struct cli_pack {
    /* Folders of training and test images. test_folder NULL: the subfolders `train` and `test` (or
     * `val`, `valid`, `validation`) of `folder` are used if they exist. */
    const char *folder, *test_folder;
    int size, channels; /* converted images are square: side in pixels; 1 (grey) or 3 channels */
    int threads;        /* 0: one for each CPU */
    bool skip_broken, quiet;
} cli_pack;

/* The functions below set values of the config in the way of the option --set: by *assignments*,
 * texts of the form KEY="VALUE". They append each assignment to the list `set`, which begins with
 * the user's own assignments, and update o->set. The texts are in memory of the caller, which must
 * outlive `set`. */
enum { CLI_ASSIGNMENT_BYTES = 4200 /* size of the text of an assignment in bytes */ };

/* If the data of the config of `o` is a folder of images, makes sure that the cache has a packed
 * file of the folder's present state, and appends the assignment data.packed="PATH OF THE FILE".
 * `text` receives the text of the assignment. For other data the function returns LS_OK and does
 * nothing. It does so for an invalid config as well, because the config's reader reports the error
 * later. Errors: LS_EDATA, LS_ENOENT, LS_EIO, LS_ENOMEM, LS_ECONFIG. */
int cli_pack_data(char text[CLI_ASSIGNMENT_BYTES], cli_list *set, ls_trainer_options *o, bool quiet,
                  ls_error *err);

/* Texts of the assignments that cli_find_run_data appends: of data.packed, and of data.path and
 * data.test_path. */
typedef struct cli_data_texts {
    char packed[CLI_ASSIGNMENT_BYTES], path[2][CLI_ASSIGNMENT_BYTES];
} cli_data_texts;

/* For a run that is resumed with its own config: finds the run's data where it is now.
 *
 * - If the folder or the table was moved together with the run's directory, appends assignments of
 *   its new path.
 * - If the data is a folder of images whose packed file in the cache no longer exists, packs the
 *   folder once more and appends an assignment of data.packed, or fails with a message about what
 *   is missing.
 *
 * *texts receives the texts of the assignments. Errors: those of cli_pack_data. */
int cli_find_run_data(cli_data_texts *texts, cli_list *set, ls_trainer_options *o, bool quiet,
                      ls_error *err);

/* Looks for a run's data whose relative path `path` does not exist in the current directory. The
 * path is relative to the directory in which the run was started, so the parents of the run's
 * directory are tried. `config`: path of the run's config. Returns the path of the data, which the
 * caller frees, or NULL if it was not found. */
char *cli_beside_run(const char *path, const char *config, const ls_host *host);

/* For a trained model: packs the folder of the config `c` once more, with the classes of the model,
 * which `format` describes. *packed becomes the path of the packed file, which the caller frees. It
 * becomes NULL if the file data.packed of the config is to be used as it is: if that file is not in
 * the cache, or if the folder does not exist. `other_folder`: the user has named another folder
 * than that of data.packed. If the named folder does not exist, the function then fails, because
 * data.packed belongs to the other folder. Errors: those of cli_pack_data; the message says where
 * the images are expected and what to do. */
int cli_pack_again(char **packed, const ls_config *c, const ls_input_format *format,
                   bool other_folder, const char *cache, const ls_host *host, ls_error *err);

/* For a trained model: decodes the images of a folder into memory. The folder has a subfolder for
 * each class, whose name must be one of the classes in `format`. If the folder contains `train` and
 * `test` (or `val`, `valid`, `validation`), only one of the two is read: `test`, or `train` if the
 * argument `train` is true. Errors: LS_ENOENT, LS_EIO, LS_EDATA (a subfolder whose name is not a
 * class; or an image cannot be read, unless skip_broken is set), LS_EUNSUPPORTED (the model does
 * not classify square images of bytes, with 1 or 3 channels, into classes with names), LS_ENOMEM.
 * Images that cannot be read are named on stderr. */
int cli_read_folder(ls_dataset **out, const ls_input_format *format, const char *folder, bool train,
                    bool skip_broken, const ls_host *host, ls_error *err);

/* Appends the images in a folder and its subfolders, sorted, to k->split[0]. The caller calls
 * cli_pack_forget afterwards, even after a failure. Errors: LS_ENOENT, LS_EIO, LS_ENOMEM, LS_EDATA
 * (folders nested too deep). */
struct cli_packing;
int cli_pack_list_all(struct cli_packing *k, const char *folder);
/* Returns whether `path` is a directory, or a symbolic link to one. */
bool cli_is_folder(const char *path);

/* ---- internal: classes and images in the folders (pack_list.c) ------------------------------ */

/* A list of names. */
typedef struct cli_names {
    const char **name;
    size_t count, capacity; /* number of names; size of the array `name` */
} cli_names;

/* A file in a folder, or a subfolder. */
typedef struct cli_entry {
    const char *path;
    int32_t label;
    int folder;    /* number of the folder that contains the image, from 1; 0: not known */
    bool is_plain; /* true: `path` is a regular file, not a symbolic link; false: not known */
} cli_entry;

typedef struct cli_texts cli_texts;

/* A list of images, and the numbers of files that were left out of it. */
typedef struct cli_listing {
    cli_entry *entry;
    size_t count, capacity; /* number of images; size of the array `entry` */
    size_t others;          /* number of files that are not images, according to their names */
    size_t foreign;         /* number of images of formats that are not supported */
    size_t deeper; /* number of images that are in subfolders of the folder of their class */
} cli_listing;

/* Remarks about a folder for the user, each a sentence. */
enum { CLI_REMARKS = 12 };
typedef struct cli_remarks {
    char text[CLI_REMARKS][400];
    int count;
} cli_remarks;

/* State of packing a folder: its images, and the progress. */
typedef struct cli_packing {
    const cli_pack *p;
    const ls_host *host;
    ls_error *err;
    cli_texts *texts; /* owns the paths and names */
    cli_names classes;
    bool fixed; /* the classes are those of a model; a subfolder with another name is an error */
    cli_listing split[2];
    int folders; /* number of folders that were listed */
    cli_remarks remarks;
    bool wants_state; /* true: the listing also computes `state` */
    ls_sha256 state;  /* the state of the folder, see above */
    size_t row;       /* size of a converted image in bytes */
    uint64_t start;   /* time at which packing began, in ns of ls_now_ns */
    uint64_t shown;   /* time at which the progress was last printed, in ns of ls_now_ns */
    /* number of images that are done, of those that cannot be read, and of those that were rotated
     * as their EXIF orientation says */
    size_t done, broken, turned;
} cli_packing;

/* Adds a remark, unless there are CLI_REMARKS already. */
void cli_pack_remark(cli_packing *k, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* Lists the images of the folders of k->p: fills k->classes and k->split, which must be zeroed, and
 * computes k->state. The caller calls cli_pack_forget afterwards, even after a failure. Errors:
 * LS_EDATA, LS_ENOENT, LS_EIO, LS_ENOMEM. */
int cli_pack_list(cli_packing *k);
/* Frees the memory of a packing. */
void cli_pack_forget(cli_packing *k);

/* Fails with LS_ENOMEM. */
int cli_pack_no_memory(const cli_packing *k);

/* Sets the time of last use of the packed file `name` in the directory `cache` to now. Then removes
 * the least recently used packed files, but never `name`, until all packed files together have at
 * most `most` bytes. Each removed file is named on stderr. Files that cannot be removed are
 * skipped. */
void cli_cache_bound(const char *cache, const char *name, uint64_t most);

/* ---- internal: decoding on all cores (pack_decode.c) ---------------------------------------- */

enum { CLI_NAMED = 20 /* limit of the broken images that are named */ };

/* A chunk: consecutive images of the list, which one thread has decoded. */
typedef struct cli_chunk {
    const cli_entry *entry;
    size_t count;
    bool ready; /* the chunk is decoded */
    /* The chunk is the last one of a *block*, some consecutive chunks of together 32 MiB. If an
     * image of the block or of an earlier block cannot be read, the packing goes on to the end of
     * the block and fails there, so that the message can name several images. */
    bool ends_block;
    uint8_t *pixels;
    char *failed; /* [count]: non-zero: the image cannot be read */
    /* number of images that were rotated as their EXIF orientation says */
    size_t turned;
    uint64_t sum[3], squares[3]; /* sums of the samples, and of their squares, in each channel */
    ls_error why[CLI_NAMED];     /* errors of the first images that cannot be read */
    size_t broken;               /* number of images that cannot be read */
} cli_chunk;

typedef struct cli_decoder cli_decoder;

/* Creates the state that the decoding threads share. Errors: LS_ENOMEM. The caller frees *out, even
 * after a failure. */
int cli_decoder_create(cli_decoder **out, cli_packing *k);
/* Frees the state. NULL is allowed. No thread may be decoding. */
void cli_decoder_destroy(cli_decoder *w);

/* Callback that receives a decoded chunk. If it fails, no further chunk is decoded. */
typedef int cli_take(void *user, const cli_chunk *c);

/* Decodes the images of the list in chunks, on the caller's thread and on others. Calls `take` for
 * each chunk, in the order of the list and one at a time, on any of these threads. Returns LS_OK,
 * or the status of the call of `take` that failed. */
int cli_decoder_run(cli_decoder *w, const cli_listing *list, cli_take *take, void *user);

#endif
