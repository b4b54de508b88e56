/* SPDX-License-Identifier: MIT */
/* Packs a folder of images, which has one subfolder for each class: decodes the images once, scales
 * them to the model's input, and writes them to a safetensors file, the *packed file*. Training
 * maps this file instead of decoding images in every run. `trainer pack` writes a packed file where
 * the user wants it; training writes one to the cache directory (folder.h).
 *
 * liblockstep links no image library. The functions that decode are a table (data/pictures.h),
 * which the caller gives or which is loaded when the first image is decoded. */
#ifndef DATA_PACK_H
#define DATA_PACK_H

#include "data/dataset.h"
#include "data/pictures.h"

/* Names of the tensors in a packed file that have the paths of the images, each followed by a zero
 * byte, in the order of the rows. */
#define LS_PACKED_FILES "files"
#define LS_PACKED_TEST_FILES "test_files"

/* Name of the metadata that says how the images were resized (ls_prep_write_resize), as a JSON
 * object. A file without it has images that cover their size. */
#define LS_PACKED_RESIZE "pictures"

/* Name of the metadata that has ls_picture_form.white, a number in a text. A file without it has no
 * images with 16-bit samples, or was packed by an older version, with their upper 8 bits. */
#define LS_PACKED_WHITE "white"

enum { LS_FOLDER_THREADS = 256 /* limit of the number of threads */ };

/* Callbacks about the work on a folder. They are called on the thread of the caller or on a
 * decoding thread, one at a time. */
typedef struct ls_folder_watch {
    /* Progress: `done` of `all` images are decoded after `seconds` seconds. `last`: all of them. It
     * is called after each chunk of images. `failed`: the work has ended with an error. NULL: not
     * called. */
    void (*progress)(void *user, size_t done, size_t all, double seconds, bool last, bool failed);
    /* An image cannot be read; `why` names it. NULL: a warning is logged. */
    void (*broken)(void *user, const char *why);
    /* A packed file was removed from the cache; `what` is a sentence. NULL: a line is logged. */
    void (*removed)(void *user, const char *what);
    void *user;
} ls_folder_watch;

/* The images of a folder and the form of the converted images. */
typedef struct ls_folder_desc {
    /* Folders of training and test images. test_folder NULL: the subfolders `train` and `test` (or
     * `val`, `valid`, `validation`) of `folder` are used if they exist. */
    const char *folder, *test_folder;
    ls_picture_form form; /* form of the converted images; ls_folder_pack finds `white` itself */
    int threads;          /* 0: one for each CPU */
    bool skip_broken;
    const ls_pictures *pictures;  /* functions that decode; NULL: loaded at run time */
    const ls_folder_watch *watch; /* NULL: broken images and removed files are logged */
    const char *program;          /* name of the program in messages; NULL: "lockstep" */
} ls_folder_desc;

/* Returns the form of the images that the keys of a config describe: data.resize and data.crop, or
 * data.image_size. */
ls_picture_form ls_form_of_keys(const ls_data_keys *keys);

/* Packs a folder into the file `to`: tensors x (U8, [rows][channels][height][width]) and y (I32),
 * test_x and test_y of test images, and metadata: class_names, mean and std of each channel of the
 * training images, sha256 of all tensors, LS_PACKED_RESIZE if they were resized, and
 * LS_PACKED_WHITE if training images have 16-bit samples. Images that cannot be read are a failure
 * unless skip_broken is set. Remarks are logged. Errors: LS_EDATA, LS_ENOENT, LS_EIO, LS_ENOMEM,
 * LS_EUNSUPPORTED (no functions that decode). */
int ls_folder_pack(const char *to, const ls_folder_desc *desc, const ls_host *host, ls_error *err);

#endif
