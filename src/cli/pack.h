/* Folders of images, read once: one safetensors file that training maps. */
#ifndef CLI_PACK_H
#define CLI_PACK_H

#include "cli/cli.h"

enum { CLI_PACK_THREADS = 256 /* at most */ };

typedef struct cli_pack {
    const char *folder,
        *test_folder; /* test_folder NULL: FOLDER/train and FOLDER/test (or val), if they are there */
    int size, channels; /* what images become */
    int threads;        /* 0: one for each CPU */
    bool skip_broken, quiet;
} cli_pack;

/* Writes tensors x (U8, [rows][channels][size][size]) and y (I32), and of test images test_x and test_y, with
 * metadata: class_names, mean and std of each channel of the training images, sha256 of all tensors. Names
 * each image that is broken on stderr; they end it unless skip_broken. Errors: LS_EDATA, LS_ENOENT, LS_EIO,
 * LS_ENOMEM. */
int cli_pack_folder(const char *to, const cli_pack *pack, const ls_host *host, ls_error *err);

/* Where the config of `o` names a folder: packs it into the cache, unless it is there and names, sizes and
 * times are the same, and adds data.packed to `set`, the text lying in `room`. Errors: as above; LS_OK
 * where there is nothing to do, or the config is wrong, which its reader will say. */
enum { CLI_PACKED_ROOM = 4200 };
int cli_pack_data(char room[CLI_PACKED_ROOM], cli_list *set, ls_trainer_options *o, bool quiet,
                  ls_error *err);

#endif
