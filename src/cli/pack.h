/* Folders of images, read once: one safetensors file that training maps. */
#ifndef CLI_PACK_H
#define CLI_PACK_H

#include "cli/cli.h"
#include "config/config.h"
#include "data/new_rows.h"
#include "hash/hash.h"

enum { CLI_PACK_THREADS = 256 /* at most */ };

typedef struct cli_pack {
    const char *folder,
        *test_folder; /* NULL: FOLDER/train and FOLDER/test (or val, valid, validation), if they are there */
    int size, channels; /* what images become */
    int threads;        /* 0: one for each CPU */
    bool skip_broken, quiet;
} cli_pack;

/* Where the config of `o` names a folder: packs it into the cache, unless it is there and names, sizes and
 * times are the same, and adds data.packed to `set`, the text lying in `room`. Errors: LS_EDATA, LS_ENOENT, LS_EIO,
 * LS_ENOMEM; LS_OK where there is nothing to do, or the config is wrong, which its reader will say. */
enum { CLI_PACKED_ROOM = 4200 };
int cli_pack_data(char room[CLI_PACKED_ROOM], cli_list *set, ls_trainer_options *o, bool quiet,
                  ls_error *err);

/* Of a run that goes on with its own config, where the cache's file is gone: packs the folder again, or says what is
 * missing. Where the folder or the table has moved with the run, sets the path of where it is now. Errors: as above. */
typedef struct cli_again {
    char packed[CLI_PACKED_ROOM], path[2][CLI_PACKED_ROOM];
} cli_again;
int cli_find_again(cli_again *room, cli_list *set, ls_trainer_options *o, bool quiet,
                   ls_error *err);
/* A path of a run's data that is not here, but beside the run's directory, whose parents may be where it was begun: → a copy
 * of the other path, or NULL. `config` is the run's. */
char *cli_beside_run(const char *path, const char *config, const ls_host *host);

/* The same for a config that has been read, for rows of classes that are known by name: → the file, which the
 * caller frees. A folder that cannot be found gives way to the file that the config names, unless `moved`: then the
 * file is of another folder. Errors: as above, with where the images are looked for, and the cure. */
int cli_pack_again(char **packed, const ls_config *c, const ls_new_rows *as, bool moved,
                   const char *cache, const ls_host *host, ls_error *err);

/* The images of a folder, a sub-folder for each class that `as` knows, decoded into memory. Where it has train and test
 * (or val, valid, validation) in it, these of test, or of train. Errors: LS_ENOENT, LS_EIO, LS_EDATA (a sub-folder of another
 * name; images that cannot be read, which are named on stderr, unless they are to be skipped), LS_ENOMEM. */
int cli_read_folder(ls_dataset **out, const ls_new_rows *as, const char *folder, bool train,
                    bool skip_broken, const ls_host *host, ls_error *err);

/* Appends the images in a folder, and in those in it, sorted, to the first split; with those at hand, for
 * cli_pack_forget. Errors: LS_ENOENT, LS_EIO, LS_ENOMEM, LS_EDATA (folders in folders without an end). */
struct cli_packing;
int cli_pack_list_all(struct cli_packing *k, const char *folder);
bool cli_is_folder(const char *path);

/* ---- inside: what is in the folders, classes and the images of each (pack_list.c) ------------ */

typedef struct cli_names {
    const char **name;
    size_t count, room;
} cli_names;

typedef struct cli_entry {
    const char *path;
    int32_t label;
    int folder;    /* number of the folder it is in, from 1 on; 0: not known */
    bool is_plain; /* a file, and no link to one; false: may be any */
} cli_entry;

typedef struct cli_texts cli_texts;

typedef struct cli_listing {
    cli_entry *entry;
    size_t count, room;
    size_t others;  /* files that are no images by their names */
    size_t foreign; /* files that are images by their names, of kinds that are not read */
    size_t deeper;  /* images in folders of their class's folder */
} cli_listing;

/* What is said of a folder: sentences. */
enum { CLI_REMARKS = 12 };
typedef struct cli_remarks {
    char text[CLI_REMARKS][400];
    int count;
} cli_remarks;

typedef struct cli_packing {
    const cli_pack *p;
    const ls_host *host;
    ls_error *err;
    cli_texts *texts; /* paths and names */
    cli_names classes;
    bool fixed; /* there are no classes but these */
    cli_listing split[2];
    int folders; /* that were listed */
    cli_remarks remarks;
    bool known_by_state; /* `state` is wanted */
    ls_sha256 state;     /* of names, sizes and times */
    size_t row;          /* bytes of an image */
    uint64_t start, shown;
    size_t done, broken, turned;
} cli_packing;

/* Adds a sentence, unless there are too many. */
void cli_pack_remark(cli_packing *k, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* Fills classes and splits, zeroed before, and takes names, sizes and times into `state`. Errors: LS_EDATA,
 * LS_ENOENT, LS_EIO, LS_ENOMEM; what was found is forgotten by its caller. */
int cli_pack_list(cli_packing *k);
void cli_pack_forget(cli_packing *k);

/* Fails for want of memory. */
int cli_pack_no_memory(const cli_packing *k);

/* Marks the cache's file `name` as used now, and takes those away that were not used for the longest time, as long as
 * all packed files of the cache have more than `most` bytes; never `name`. Each is named on stderr. What cannot be taken
 * away stays. */
void cli_cache_bound(const char *cache, const char *name, uint64_t most);

/* ---- inside: images that are decoded on all cores (pack_crew.c) ------------------------------- */

enum { CLI_NAMED = 20 /* broken images */ };

/* Images that one thread has decoded, side by side. */
typedef struct cli_chunk {
    const cli_entry *entry;
    size_t count;
    bool ready, ends_block; /* at its end, broken images end the packing */
    uint8_t *pixels;
    char *failed;                /* [count] */
    size_t turned;               /* images, as their EXIF orientation says */
    uint64_t sum[3], squares[3]; /* of the samples of each channel */
    ls_error why[CLI_NAMED];
    size_t broken;
} cli_chunk;

typedef struct cli_crew cli_crew;

/* Errors: LS_ENOMEM. */
int cli_crew_make(cli_crew **out, cli_packing *k);
void cli_crew_free(cli_crew *w);

/* What is done with a chunk; a failure ends the rest. */
typedef int cli_take(void *user, const cli_chunk *c);

/* The caller and other threads decode the list's chunks. Each is handed to `take`, in their order, on one of these
 * threads. → take's failure, if any. */
int cli_crew_run(cli_crew *w, const cli_listing *list, cli_take *take, void *user);

#endif
