/* SPDX-License-Identifier: MIT */
/* CIFAR's binary formats: files of records without a header. A record is
 *
 *     a label, one byte; in CIFAR-100, another byte before it is one of 20 coarse classes and is
 *     not used
 *     32×32 bytes of red, row by row; then as many of green, and as many of blue
 *
 * CIFAR-10 has five training files, CIFAR-100 one; the last file is the test split. A file does not
 * contain its number of records. The published numbers are built in, so that a file that ends after
 * a complete record, but too early, is detected. */
#include "base/error.h"
#include "base/host.h"
#include "data/beside.h"
#include "data/kinds.h"

#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

enum {
    CHANNELS = 3,
    SIDE = 32,
    IMAGE = CHANNELS * SIDE * SIDE,
    MOST = 2 + IMAGE, /* size limit of a record in bytes */
    CHUNK = 64        /* number of records read at a time */
};

static const char *const cifar10_names[6] = {
    "data_batch_1.bin", "data_batch_2.bin", "data_batch_3.bin",
    "data_batch_4.bin", "data_batch_5.bin", "test_batch.bin",
};

static const ls_cifar_detail cifar10 = {
    .records = {10000, 10000},
    .labels = 1,
    .files = {cifar10_names,
              6,
              {"cifar-10-batches-bin", "CIFAR10/cifar-10-batches-bin"},
              "fetch cifar-10-binary.tar.gz from https://www.cs.toronto.edu/~kriz/cifar.html and "
              "unpack it in one of the directories below"},
};

static const char *const cifar100_names[2] = {"train.bin", "test.bin"};

static const ls_cifar_detail cifar100 = {
    .records = {50000, 10000},
    .labels = 2,
    .files = {cifar100_names,
              2,
              {"cifar-100-binary", "CIFAR100/cifar-100-binary"},
              "fetch cifar-100-binary.tar.gz from https://www.cs.toronto.edu/~kriz/cifar.html and "
              "unpack it in one of the directories below"},
};

/* State of reading one split. */
typedef struct cifar_split {
    uint32_t records; /* number of records in each file */
    int record;       /* size of a record in bytes */
    char *const *path;
    int paths;
    uint32_t filled; /* number of rows stored in `out` */
    /* only the labels are stored, because the caller does not need the images (labels_only) */
    bool unread;
    ls_resident *out;
    ls_sha256 hash; /* covers all files of the split, one after another */
    uint8_t *chunk; /* [CHUNK] records */
    const ls_opening *o;
} cifar_split;

/* Fails if the file is too small to be complete. Called before anything is read. */
static int check_size(const cifar_split *s, const ls_byte_reader *r, const char *path)
{
    uint64_t expected = s->records * (uint64_t)s->record;
    if (expected <= ls_byte_reader_bound(r))
        return LS_OK;
    return ls_fail(s->o->err, LS_EDATA,
                   "%s: expected %u records of %d bytes, found the end of the file before byte "
                   "%llu; fetch it again",
                   path, (unsigned)s->records, s->record, (unsigned long long)expected);
}

/* Checks and stores the `count` records in the chunk, the first of which is at `offset` in the
 * file. Records beyond data.limit are checked but not stored, so that damage is detected even
 * there. */
static int take_records(cifar_split *s, const char *path, uint32_t count, uint64_t offset)
{
    ls_dataset_info *info = &s->out->base.info;
    for (uint32_t i = 0; i < count; i++) {
        const size_t at = (size_t)(i + 1) * (size_t)s->record - IMAGE - 1;
        const uint8_t *record = s->chunk + at;
        if (record[0] >= info->classes)
            return ls_fail(s->o->err, LS_EDATA,
                           "%s: expected a label from 0 to %d at byte %llu, found %d; fetch the "
                           "file again",
                           path, info->classes - 1, (unsigned long long)offset + at, record[0]);
        if (s->filled == info->rows)
            continue;
        s->out->labels[s->filled] = record[0];
        if (!s->unread)
            memcpy(s->out->images + (size_t)s->filled * IMAGE, record + 1, IMAGE);
        s->filled++;
    }
    return LS_OK;
}

static int read_records(cifar_split *s, ls_byte_reader *r, const char *path)
{
    char what[64];
    snprintf(what, sizeof what, "%u records of %d bytes", (unsigned)s->records, s->record);
    for (uint32_t done = 0; done < s->records;) {
        uint32_t left = s->records - done, n = left < CHUNK ? left : CHUNK;
        uint64_t offset = ls_byte_reader_offset(r);
        int status =
            ls_byte_reader_read(r, s->chunk, (size_t)n * (size_t)s->record, what, s->o->err);
        if (status == LS_OK)
            status = take_records(s, path, n, offset);
        if (status)
            return status;
        if (!s->unread)
            ls_sha256_update(&s->hash, s->chunk, (size_t)n * (size_t)s->record);
        done += n;
    }
    return LS_OK;
}

static int read_file(cifar_split *s, const char *path)
{
    ls_byte_reader *r;
    char hash[LS_SHA256_HEX];
    int status = ls_byte_reader_open(&r, path, s->o->host, s->o->err);
    if (status)
        return status;
    ls_byte_reader_disable_hash(r); /* s->hash covers all files of the split */
    status = check_size(s, r, path);
    if (status == LS_OK)
        status = read_records(s, r, path);
    if (status == LS_OK)
        status = ls_byte_reader_end(r, hash, s->o->err);
    ls_byte_reader_close(r);
    return status;
}

static int read_split(cifar_split *s)
{
    int status = LS_OK;
    ls_sha256_init(&s->hash);
    s->chunk = ls_alloc(s->o->host, CHUNK * MOST);
    if (!s->chunk)
        status = ls_fail(s->o->err, LS_ENOMEM, "%s: out of memory", s->out->base.info.name);
    for (int i = 0; status == LS_OK && i < s->paths; i++)
        status = read_file(s, s->path[i]);
    ls_free(s->o->host, s->chunk);
    if (!s->unread)
        ls_sha256_final_hex(&s->hash, s->out->base.info.images_sha256);
    return status;
}

/* Opens a split. The last file is the test split; the files before it are the training split. */
static int open_split(ls_dataset **out, int test, const ls_located *located, const ls_opening *o)
{
    const ls_cifar_detail *detail = o->kind->detail;
    const int training = detail->files.count - 1;
    cifar_split s = {
        .records = detail->records[test],
        .record = detail->labels + IMAGE,
        .path = located->file + (test ? training : 0),
        .paths = test ? 1 : training,
        .unread = !test && o->spec->labels_only && !(o->spec->keys.validation > 0),
        .o = o,
    };
    const uint32_t rows = (uint32_t)s.paths * s.records;
    const ls_dataset_info info = ls_dataset_split_info(o, test, located->directory, rows);
    int status = test ? LS_OK : ls_dataset_check_limit(o, rows, located->directory);
    if (status == LS_OK)
        status = ls_resident_create(&s.out, &info, o);
    if (status)
        return status;
    *out = &s.out->base;
    return read_split(&s);
}

/* Arguments of the thread that reads the test split while the caller reads the training split. An
 * error of the test split is reported only if the training split has none. */
typedef struct cifar_test {
    ls_opening o;
    ls_error err;
    const ls_located *located;
    ls_dataset *data;
} cifar_test;

static int open_test(void *test)
{
    cifar_test *t = test;
    return open_split(&t->data, 1, t->located, &t->o);
}

static int open_splits(ls_dataset *split[2], const ls_located *located, const ls_opening *o)
{
    ls_beside other;
    cifar_test test = {.o = *o, .located = located};
    test.o.err = &test.err;
    ls_beside_begin(&other, open_test, &test);
    int status = open_split(&split[0], 0, located, o);
    const int test_status = ls_beside_end(&other);
    split[1] = test.data;
    if (status == LS_OK && test_status && o->err)
        *o->err = test.err;
    return status ? status : test_status;
}

/* Replaces LS_ENOENT by a better message if the directory contains CIFAR in Python's pickle format,
 * the most common one, which is not supported. */
static int fail_pickled(const ls_cifar_detail *detail, const ls_opening *o, int status)
{
    static const char *const folders[] = {"", "cifar-10-batches-py", "cifar-100-python"};
    const char *name = detail->files.count > 2 ? "data_batch_1" : "train", *path = o->spec->path;
    char folder[LS_PATH_BYTES], file[LS_PATH_BYTES];
    for (size_t i = 0; path && status == LS_ENOENT && i < sizeof folders / sizeof *folders; i++) {
        ls_path_join(file, ls_path_join(folder, path, folders[i]), name);
        struct stat st;
        if (stat(file, &st) == 0 && S_ISREG(st.st_mode))
            return ls_fail(o->err, status,
                           "%s: %s in Python's pickle format, which cannot be read; %s, or save "
                           "its arrays by numpy.savez and set data.name to npy",
                           file, o->kind->about.name, detail->files.remedy);
    }
    return status;
}

int ls_cifar_open(ls_dataset *split[2], const ls_opening *o)
{
    const ls_cifar_detail *detail = o->kind->detail;
    ls_located located;
    int status = fail_pickled(detail, o, ls_locate(&located, &detail->files, o));
    if (status == LS_OK)
        status = open_splits(split, &located, o);
    ls_located_free(&located, o->host);
    return status;
}

static const char *const things[] = {"airplane", "automobile", "bird",  "cat",  "deer",
                                     "dog",      "frog",       "horse", "ship", "truck"};

const ls_dataset_kind ls_dataset_cifar10 = {
    {"cifar10", 3, 32, 32, 10, things, NULL, LS_DATA_PUBLIC}, ls_cifar_open, &cifar10};

static const char *const hundred[] = {
    "apple",       "aquarium_fish", "baby",      "bear",       "beaver",       "bed",
    "bee",         "beetle",        "bicycle",   "bottle",     "bowl",         "boy",
    "bridge",      "bus",           "butterfly", "camel",      "can",          "castle",
    "caterpillar", "cattle",        "chair",     "chimpanzee", "clock",        "cloud",
    "cockroach",   "couch",         "crab",      "crocodile",  "cup",          "dinosaur",
    "dolphin",     "elephant",      "flatfish",  "forest",     "fox",          "girl",
    "hamster",     "house",         "kangaroo",  "keyboard",   "lamp",         "lawn_mower",
    "leopard",     "lion",          "lizard",    "lobster",    "man",          "maple_tree",
    "motorcycle",  "mountain",      "mouse",     "mushroom",   "oak_tree",     "orange",
    "orchid",      "otter",         "palm_tree", "pear",       "pickup_truck", "pine_tree",
    "plain",       "plate",         "poppy",     "porcupine",  "possum",       "rabbit",
    "raccoon",     "ray",           "road",      "rocket",     "rose",         "sea",
    "seal",        "shark",         "shrew",     "skunk",      "skyscraper",   "snail",
    "snake",       "spider",        "squirrel",  "streetcar",  "sunflower",    "sweet_pepper",
    "table",       "tank",          "telephone", "television", "tiger",        "tractor",
    "train",       "trout",         "tulip",     "turtle",     "wardrobe",     "whale",
    "willow_tree", "wolf",          "woman",     "worm"};

const ls_dataset_kind ls_dataset_cifar100 = {
    {"cifar100", 3, 32, 32, 100, hundred, NULL, LS_DATA_PUBLIC}, ls_cifar_open, &cifar100};
