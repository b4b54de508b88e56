/* CIFAR's binary formats: files of records without a header,
 *     the label, one byte; CIFAR-100 has one of 20 coarse classes in front of it, which is not used
 *     32×32 bytes of red, in row order; then as many of green; then of blue
 * CIFAR-10 has five files for training, CIFAR-100 one; the last file is for testing. Nothing in a file says how many records it has, so
 * their number is known beforehand: a file that was cut between two records is noticed, too.
 */
#include "base/error.h"
#include "base/host.h"
#include "data/kinds.h"

#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

enum {
    CHANNELS = 3,
    SIDE = 32,
    IMAGE = CHANNELS * SIDE * SIDE,
    MOST = 2 + IMAGE, /* bytes of a record */
    CHUNK = 64        /* records read at a time */
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

/* One split under way. */
typedef struct cifar_split {
    uint32_t records; /* of each file */
    int record;       /* bytes of one */
    char *const *path;
    int paths;
    uint32_t filled; /* rows of `out` */
    ls_resident *out;
    ls_sha256 hash; /* of all files one after another */
    uint8_t *chunk; /* CHUNK records */
    const ls_opening *o;
} cifar_split;

/* Refuses a file that cannot be whole before anything of it is read. */
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

/* Records beyond the limit are checked all the same, so that a limit hides no damage. `offset` is
 * that of the first record. */
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
    ls_sha256_final_hex(&s->hash, s->out->base.info.images_sha256);
    return status;
}

/* The last file is the test split, those before it are the training split. */
static int open_split(ls_dataset **out, int test, const ls_located *located, const ls_opening *o)
{
    const ls_cifar_detail *detail = o->kind->detail;
    const int training = detail->files.count - 1;
    cifar_split s = {
        .records = detail->records[test],
        .record = detail->labels + IMAGE,
        .path = located->file + (test ? training : 0),
        .paths = test ? 1 : training,
        .o = o,
    };
    const uint32_t rows = (uint32_t)s.paths * s.records;
    const ls_dataset_info info = ls_dataset_split(o, test, located->directory, rows);
    int status = test ? LS_OK : ls_dataset_check_limit(o, rows, located->directory);
    if (status == LS_OK)
        status = ls_resident_create(&s.out, &info, o);
    if (status)
        return status;
    *out = &s.out->base;
    return read_split(&s);
}

/* What most programs' copies are is not what is read here. */
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
                           "%s: Python's form of %s, which is not read; %s, or save its arrays by "
                           "numpy.savez and set data.name to npy",
                           file, o->kind->about.name, detail->files.remedy);
    }
    return status;
}

int ls_cifar_open(ls_dataset *split[2], const ls_opening *o)
{
    const ls_cifar_detail *detail = o->kind->detail;
    ls_located located;
    int status = fail_pickled(detail, o, ls_locate(&located, &detail->files, o));
    for (int test = 0; status == LS_OK && test < 2; test++)
        status = open_split(&split[test], test, &located, o);
    ls_located_free(&located, o->host);
    return status;
}

static const char *const things[] = {"airplane", "automobile", "bird",  "cat",  "deer",
                                     "dog",      "frog",       "horse", "ship", "truck"};

const ls_dataset_kind ls_dataset_cifar10 = {
    {"cifar10", 3, 32, 32, 10, things, NULL}, ls_cifar_open, &cifar10};

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
    {"cifar100", 3, 32, 32, 100, hundred, NULL}, ls_cifar_open, &cifar100};
