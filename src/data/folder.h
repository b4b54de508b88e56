/* SPDX-License-Identifier: MIT */
/* A folder of images as a data set: its list of images, decoding, and the cache of packed files
 * (pack.h).
 *
 * The *state* of a folder is a hash of its path and of the names, sizes and times of its images.
 * The name of a packed file depends on it and on the form of the converted images. */
#ifndef DATA_FOLDER_H
#define DATA_FOLDER_H

#include "data/new_rows.h"
#include "data/pack.h"
#include "hash/hash.h"

enum { LS_FOLDER_PATH = 4096 }; /* size of the buffer for the path of a packed file */

/* Returns the form of the rows that a trained model reads. */
ls_picture_form ls_form_of_input(const ls_input_format *format);

/* Packs a folder into the directory `cache`, unless the cache has a packed file of its present
 * state, and stores the path of that file. `format` NULL: the classes are the subfolders; otherwise
 * those of the model that `format` describes. `most`: largest total size of the cache in bytes; the
 * least recently used files are removed. Errors: those of ls_folder_pack. */
int ls_folder_pack_cached(char path[LS_FOLDER_PATH], const char *cache, uint64_t most,
                          const ls_folder_desc *desc, const ls_input_format *format,
                          const ls_host *host, ls_error *err);

/* For a trained model: decodes the images of desc->folder into memory. The folder has a subfolder
 * for each class, whose name must be one of the classes in `format`, from which the size and the
 * channels are taken. If the folder contains `train` and `test` (or `val`, `valid`, `validation`),
 * only one of the two is read: `test`, or `train` if the argument `train` is true. Errors:
 * LS_ENOENT, LS_EIO, LS_EDATA (a subfolder whose name is not a class; or an image cannot be read,
 * unless skip_broken is set), LS_EUNSUPPORTED (the model does not classify images of bytes, with 1
 * or 3 channels, into classes with names), LS_ENOMEM. */
int ls_folder_read(ls_dataset **out, const ls_input_format *format, const ls_folder_desc *desc,
                   bool train, const ls_host *host, ls_error *err);

/* Appends the images in a folder and its subfolders, sorted, to k->split[0]. The caller calls
 * ls_folder_fini afterwards, even after a failure. Errors: LS_ENOENT, LS_EIO, LS_ENOMEM, LS_EDATA
 * (folders nested too deep). */
struct ls_folder;
int ls_folder_list_all(struct ls_folder *k, const char *folder);

/* ---- classes and images in the folders (folder_list.c) --------------------------------------- */

/* A list of names. */
typedef struct ls_folder_names {
    const char **name;
    size_t count, capacity; /* number of names; size of the array `name` */
} ls_folder_names;

/* A file in a folder, or a subfolder. */
typedef struct ls_folder_entry {
    const char *path;
    int32_t label;
    int folder;    /* number of the folder that contains the image, from 1; 0: not known */
    bool is_plain; /* true: `path` is a regular file, not a symbolic link; false: not known */
} ls_folder_entry;

typedef struct ls_folder_texts ls_folder_texts;

/* A list of images, and the numbers of files that were left out of it. */
typedef struct ls_folder_listing {
    ls_folder_entry *entry;
    size_t count, capacity; /* number of images; size of the array `entry` */
    size_t others;          /* number of files that are not images, according to their names */
    size_t loose;           /* number of images beside the folders of the classes */
    size_t foreign;         /* number of images of formats that are not supported */
    char foreign_ends[40];  /* the endings of their names, as many as fit: "gif, tiff" */
    size_t deeper; /* number of images that are in subfolders of the folder of their class */
} ls_folder_listing;

/* Remarks about a folder for the user, each a sentence. */
enum { LS_FOLDER_REMARKS = 12 };
typedef struct ls_folder_remarks {
    char text[LS_FOLDER_REMARKS][400];
    int count;
} ls_folder_remarks;

/* A folder whose images are listed or decoded: its images, and the progress. */
typedef struct ls_folder {
    const ls_folder_desc *p;
    const ls_host *host;
    ls_error *err;
    ls_folder_texts *texts; /* owns the paths and names */
    ls_folder_names classes;
    bool fixed; /* the classes are those of a model; a subfolder with another name is an error */
    ls_folder_listing split[2];
    int folders; /* number of folders that were listed */
    ls_folder_remarks remarks;
    bool wants_state; /* true: the listing also computes `state` */
    ls_sha256 state;  /* the state of the folder, see above */
    /* form of the converted images. The white level of a folder that is packed is found first. */
    ls_picture_form form;
    size_t row;     /* size of a converted image in bytes */
    uint64_t start; /* time at which packing began, in ns of ls_now_ns */
    /* number of images that are done, of those that cannot be read, of those that were rotated as
     * their EXIF orientation says, and of those that were laid on white */
    size_t done, broken, turned, laid;
} ls_folder;

/* Adds a remark, unless there are LS_FOLDER_REMARKS already. */
void ls_folder_remark(ls_folder *k, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* Lists the images of the folders of k->p: fills k->classes and k->split, which must be zeroed, and
 * computes k->state. The caller calls ls_folder_fini afterwards, even after a failure. Errors:
 * LS_EDATA, LS_ENOENT, LS_EIO, LS_ENOMEM. */
int ls_folder_list(ls_folder *k);
/* Frees the memory of a listed folder. */
void ls_folder_fini(ls_folder *k);

/* Decodes the training images of a listed folder to k->form, one after another up to the first one
 * that differs. Errors: LS_EDATA (all are equal), LS_EUNSUPPORTED, LS_ENOMEM. */
int ls_folder_check_differ(ls_folder *k);

/* Fails with LS_ENOMEM. */
int ls_folder_no_memory(const ls_folder *k);

/* Sets the time of last use of the packed file `name` in the directory `cache` to now. Then removes
 * the least recently used packed files, but never `name`, until all packed files together have at
 * most `most` bytes. Each removed file is reported (`watch`, which may be NULL). Files that cannot
 * be removed are skipped. */
void ls_folder_cache_bound(const char *cache, const char *name, uint64_t most,
                           const ls_folder_watch *watch, const ls_host *host);

/* ---- decoding on all cores (folder_decode.c) ------------------------------------------------- */

enum { LS_FOLDER_NAMED = 20 /* limit of the broken images that are named */ };

/* A chunk: consecutive images of the list, which one thread has decoded. */
typedef struct ls_folder_chunk {
    const ls_folder_entry *entry;
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
    size_t laid; /* number of images with transparent pixels, which were laid on white */
    int largest; /* largest sample of the 16-bit images; 0: there are none */
    uint64_t sum[3], squares[3];   /* sums of the samples, and of their squares, in each channel */
    ls_error why[LS_FOLDER_NAMED]; /* errors of the first images that cannot be read */
    size_t broken;                 /* number of images that cannot be read */
} ls_folder_chunk;

typedef struct ls_folder_decoder ls_folder_decoder;

/* Creates the state that the decoding threads share. Errors: LS_ENOMEM, those of ls_pictures_find.
 * The caller frees *out, even after a failure. */
int ls_folder_decoder_create(ls_folder_decoder **out, ls_folder *k);
/* Frees the state. NULL is allowed. No thread may be decoding. */
void ls_folder_decoder_destroy(ls_folder_decoder *w);

/* Callback that receives a decoded chunk. If it fails, no further chunk is decoded. */
typedef int ls_folder_take(void *user, const ls_folder_chunk *c);

/* Decodes the images of the list in chunks, on the caller's thread and on others. Calls `take` for
 * each chunk, in the order of the list and one at a time, on any of these threads. Returns LS_OK,
 * or the status of the call of `take` that failed. */
int ls_folder_decoder_run(ls_folder_decoder *w, const ls_folder_listing *list, ls_folder_take *take,
                          void *user);

/* Finds the largest sample of the list's images with 16-bit samples; *largest is 0 if there are
 * none. Images that cannot be read are ignored. */
int ls_folder_decoder_measure(ls_folder_decoder *w, const ls_folder_listing *list, int *largest);

#endif
