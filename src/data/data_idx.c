/* SPDX-License-Identifier: MIT */
/* The IDX format of MNIST and similar datasets. All numbers are big-endian:
 *
 *     byte 0  0x00000803: images, three dimensions of unsigned bytes;
 *             0x00000801: labels, one dimension
 *     byte 4  number of rows
 *     byte 8  height and width (images only)
 *
 * After the header comes the payload: one byte for each pixel or label, row by row. */
#include "base/error.h"
#include "base/host.h"
#include "data/beside.h"
#include "data/kinds.h"

#include <string.h>

enum {
    IMAGES_MAGIC = 0x0803,
    LABELS_MAGIC = 0x0801,
    IMAGES_HEADER = 16,
    LABELS_HEADER = 8,
    MAX_SIDE = 4096
};

/* SHA-256 of the decompressed files as their makers released them. */
static const char *const fashion_mnist_published[4] = {
    "c59f468a2f672dc815687fe0f83887768d799fd8a3f3276145d20f83aa44d888",
    "bad3541b69d912435c50bb6ba87bec294ff4f6a2e1246121d8633921760443d9",
    "5b4141f0afbad91edebe8549f8fcffe087ea10ca49f1dbef5c9a5cd8815ce37b",
    "0402a96d92fd2663957122ceb108a494c5af83dab82d92729df917d7dec38c34",
};

static const char *const file_names[4] = {
    "train-images-idx3-ubyte",
    "train-labels-idx1-ubyte",
    "t10k-images-idx3-ubyte",
    "t10k-labels-idx1-ubyte",
};

static const ls_idx_detail fashion_mnist = {
    .files = {file_names,
              4,
              {"fashion-mnist", "FashionMNIST/raw"},
              "install the Debian package dataset-fashion-mnist"},
    .published = fashion_mnist_published,
};

/* EMNIST by class. Its images are stored with x and y exchanged, as in the files that NIST
 * publishes, and are not turned. */
static const char *const emnist_names[4] = {
    "emnist-byclass-train-images-idx3-ubyte",
    "emnist-byclass-train-labels-idx1-ubyte",
    "emnist-byclass-test-images-idx3-ubyte",
    "emnist-byclass-test-labels-idx1-ubyte",
};

static const ls_idx_detail emnist = {
    .files =
        {emnist_names,
         4,
         {"emnist", "EMNIST/raw"},
         "fetch gzip.zip from https://www.nist.gov/itl/products-and-services/emnist-dataset and "
         "unpack it in one of the directories below"},
};

static const ls_idx_detail mnist = {
    .files = {file_names, 4, {"mnist", "MNIST/raw"}, NULL},
};

/* State of reading one split. */
typedef struct idx_split {
    const ls_opening *o;
    int test; /* 0: training split, 1: test split */
    const char *directory;
    const char *images_path;
    const char *labels_path;
    const char *const *published; /* SHA-256 of images and labels; NULL: none is published */
    uint32_t rows;                /* number of rows in the files */
    uint32_t height;
    uint32_t width;
} idx_split;

static uint32_t big_endian(const uint8_t *p)
{
    return (uint32_t)p[0] << 24 | (uint32_t)p[1] << 16 | (uint32_t)p[2] << 8 | p[3];
}

static int check_magic(const idx_split *s, const char *path, const uint8_t *header, uint32_t magic)
{
    uint32_t found = big_endian(header);
    if (found == magic)
        return LS_OK;
    if (found == IMAGES_MAGIC || found == LABELS_MAGIC)
        return ls_fail(s->o->err, LS_EDATA,
                       "%s: expected IDX %s (0x%08x) at byte 0, found %s (0x%08x); are the files "
                       "swapped?",
                       path, magic == IMAGES_MAGIC ? "images" : "labels", (unsigned)magic,
                       found == IMAGES_MAGIC ? "images" : "labels", (unsigned)found);
    return ls_fail(s->o->err, LS_EDATA,
                   "%s: expected the IDX number 0x%08x at byte 0, found 0x%08x; this is no IDX "
                   "file of %s",
                   path, (unsigned)magic, (unsigned)found,
                   magic == IMAGES_MAGIC ? "images" : "labels");
}

/* Refuses a header that promises more bytes than the file can contain, before memory is
 * allocated. */
static int check_promise(const idx_split *s, const ls_byte_reader *r, const char *path,
                         uint64_t payload)
{
    uint64_t bound = ls_byte_reader_bound(r);
    uint64_t header = ls_byte_reader_offset(r);
    if (payload <= bound && header + payload <= bound)
        return LS_OK;
    return ls_fail(
        s->o->err, LS_EDATA,
        "%s: expected %llu bytes after the header, by its counts from byte 4 on, found a "
        "file too small to hold them; fetch it again",
        path, (unsigned long long)payload);
}

static int read_images_header(idx_split *s, ls_byte_reader *r)
{
    uint8_t h[IMAGES_HEADER];
    const char *path = s->images_path;
    int status = ls_byte_reader_read(r, h, sizeof h, "an IDX header of 16 bytes", s->o->err);
    if (status == LS_OK)
        status = check_magic(s, path, h, IMAGES_MAGIC);
    if (status)
        return status;
    s->rows = big_endian(h + 4);
    s->height = big_endian(h + 8);
    s->width = big_endian(h + 12);
    if (s->rows == 0)
        return ls_fail(s->o->err, LS_EDATA, "%s: expected at least one image at byte 4, found 0",
                       path);
    if (s->height == 0 || s->height > MAX_SIDE || s->width == 0 || s->width > MAX_SIDE)
        return ls_fail(s->o->err, LS_EDATA,
                       "%s: expected images of 1 to %d pixels a side at byte 8, found %u x %u",
                       path, MAX_SIDE, (unsigned)s->height, (unsigned)s->width);
    return check_promise(s, r, path, (uint64_t)s->rows * s->height * s->width);
}

static int read_labels_header(const idx_split *s, ls_byte_reader *r)
{
    uint8_t h[LABELS_HEADER];
    const char *path = s->labels_path;
    int status = ls_byte_reader_read(r, h, sizeof h, "an IDX header of 8 bytes", s->o->err);
    if (status == LS_OK)
        status = check_magic(s, path, h, LABELS_MAGIC);
    if (status)
        return status;
    uint32_t labels = big_endian(h + 4);
    if (labels != s->rows)
        return ls_fail(s->o->err, LS_EDATA,
                       "%s: expected %u labels at byte 4, one for each image of %s, found %u; the "
                       "two files do not belong together",
                       path, (unsigned)s->rows, s->images_path, (unsigned)labels);
    return check_promise(s, r, path, labels);
}

/* Checks `count` labels; `from` is the row of labels[0]. */
static int check_labels(const idx_split *s, const uint8_t *labels, uint32_t count, uint32_t from)
{
    int classes = s->o->kind->about.classes;
    for (uint32_t i = 0; i < count; i++)
        if (labels[i] >= classes)
            return ls_fail(s->o->err, LS_EDATA,
                           "%s: expected a label from 0 to %d at byte %llu, found %d; fetch the "
                           "file again",
                           s->labels_path, classes - 1,
                           (unsigned long long)from + i + LABELS_HEADER, labels[i]);
    return LS_OK;
}

/* Reads and checks all labels, and stores those of the rows within data.limit. */
static int read_labels(const idx_split *s, ls_byte_reader *r, ls_resident *out)
{
    const uint32_t kept = out->base.info.rows;
    int status = LS_OK;
    for (uint32_t row = 0; status == LS_OK && row < s->rows;) {
        uint8_t chunk[4096];
        uint32_t n = s->rows - row < sizeof chunk ? s->rows - row : (uint32_t)sizeof chunk;
        status = ls_byte_reader_read(r, chunk, n, "as many labels as byte 4 promises", s->o->err);
        if (status == LS_OK)
            status = check_labels(s, chunk, n, row);
        for (uint32_t i = 0; status == LS_OK && i < n && row + i < kept; i++)
            out->labels[row + i] = chunk[i];
        row += n;
    }
    return status;
}

/* Reads all images, and stores those of the rows within data.limit. The images beyond the limit are
 * read so that damage in them is detected as well. */
static int read_images(const idx_split *s, ls_byte_reader *r, ls_resident *out)
{
    const char *what = "as many images as byte 4 promises";
    size_t bytes = ls_dataset_image_bytes(&out->base);
    uint32_t kept = out->base.info.rows;
    int status = ls_byte_reader_read(r, out->images, kept * bytes, what, s->o->err);
    if (status == LS_OK)
        status = ls_byte_reader_skip(r, (uint64_t)(s->rows - kept) * bytes, what, s->o->err);
    return status;
}

/* Returns whether the images of this split are left unread, because the caller needs only labels
 * (labels_only). */
static bool is_unread(const idx_split *s)
{
    return !s->test && s->o->spec->labels_only && !(s->o->spec->keys.validation > 0);
}

/* Compares the SHA-256 of the files with those that the makers published. A difference is only a
 * warning, because a variant of the data may be intended. */
static void compare_payload(const idx_split *s, ls_dataset_info *info)
{
    if (!s->published || is_unread(s))
        return;
    int images = strcmp(info->images_sha256, s->published[0]) == 0;
    int labels = strcmp(info->labels_sha256, s->published[1]) == 0;
    info->payload = images && labels ? LS_PAYLOAD_PUBLISHED : LS_PAYLOAD_DIFFERS;
    for (int i = 0; i < 2; i++)
        if (!(i == 0 ? images : labels))
            ls_log(s->o->host, LS_LOG_WARNING,
                   "%s: not the published content of %s: expected SHA-256 %.16s, found %.16s; "
                   "results cannot be compared",
                   i == 0 ? s->images_path : s->labels_path, s->o->kind->about.name,
                   s->published[i], i == 0 ? info->images_sha256 : info->labels_sha256);
}

static int create_split(const idx_split *s, ls_resident **out)
{
    ls_dataset_info info = ls_dataset_split_info(s->o, s->test, s->directory, s->rows);
    info.height = (int)s->height;
    info.width = (int)s->width;
    return ls_resident_create(out, &info, s->o);
}

static int open_split(idx_split *s, ls_dataset **out)
{
    ls_byte_reader *images = NULL;
    ls_byte_reader *labels = NULL;
    ls_resident *data = NULL;
    int status = ls_byte_reader_open(&images, s->images_path, s->o->host, s->o->err);
    if (status == LS_OK)
        status = read_images_header(s, images);
    if (status == LS_OK)
        status = ls_byte_reader_open(&labels, s->labels_path, s->o->host, s->o->err);
    if (status == LS_OK)
        status = read_labels_header(s, labels);
    if (status == LS_OK && !s->test)
        status = ls_dataset_check_limit(s->o, s->rows, s->directory);
    if (status == LS_OK)
        status = create_split(s, &data);
    *out = data ? &data->base : NULL;
    if (status == LS_OK)
        status = read_labels(s, labels, data);
    if (status == LS_OK)
        status = ls_byte_reader_end(labels, data->base.info.labels_sha256, s->o->err);
    if (status == LS_OK && !is_unread(s))
        status = read_images(s, images, data);
    if (status == LS_OK && !is_unread(s))
        status = ls_byte_reader_end(images, data->base.info.images_sha256, s->o->err);
    ls_byte_reader_close(labels);
    ls_byte_reader_close(images);
    return status;
}

/* Arguments of the thread that reads the test split while the caller reads the training split. An
 * error of the test split is reported only if the training split has none. Warnings about the test
 * split are logged by the calling thread, afterwards. */
typedef struct idx_test {
    ls_opening o;
    ls_error err;
    idx_split split;
    ls_dataset *data;
} idx_test;

static int open_test(void *test)
{
    idx_test *t = test;
    return open_split(&t->split, &t->data);
}

/* Checks that the images of both splits have the same size, because a network has one input
 * size. */
static int check_same_shape(const ls_dataset *train, const ls_dataset *test, const char *path,
                            ls_error *err)
{
    const ls_dataset_info *a = &train->info;
    const ls_dataset_info *b = &test->info;
    if (a->height == b->height && a->width == b->width)
        return LS_OK;
    return ls_fail(err, LS_EDATA,
                   "%s: expected test images of %d x %d pixels at byte 8, like the training "
                   "images, found %d x %d",
                   path, a->height, a->width, b->height, b->width);
}

static idx_split split_of(const ls_opening *o, const ls_located *paths, int test)
{
    const ls_idx_detail *detail = o->kind->detail;
    return (idx_split){
        .o = o,
        .test = test,
        .directory = paths->directory,
        .images_path = paths->file[2 * test],
        .labels_path = paths->file[2 * test + 1],
        .published = detail->published ? detail->published + 2 * test : NULL,
    };
}

static int open_splits(ls_dataset *split[2], const ls_located *paths, const ls_opening *o)
{
    ls_beside other;
    idx_split train = split_of(o, paths, 0);
    idx_test test = {.o = *o};
    test.o.err = &test.err;
    test.split = split_of(&test.o, paths, 1);
    ls_beside_begin(&other, open_test, &test);
    int status = open_split(&train, &split[0]);
    const int test_status = ls_beside_end(&other);
    split[1] = test.data;
    if (status == LS_OK)
        compare_payload(&train, &split[0]->info);
    if (status == LS_OK && test_status && o->err)
        *o->err = test.err;
    if (status == LS_OK && test_status == LS_OK)
        compare_payload(&test.split, &split[1]->info);
    return status ? status : test_status;
}

int ls_idx_open(ls_dataset *split[2], const ls_opening *o)
{
    const ls_idx_detail *detail = o->kind->detail;
    ls_located paths;
    int status = ls_locate(&paths, &detail->files, o);
    if (status == LS_OK)
        status = open_splits(split, &paths, o);
    if (status == LS_OK)
        status = check_same_shape(split[0], split[1], paths.file[2], o->err);
    ls_located_free(&paths, o->host);
    return status;
}

static const char *const clothes[] = {"t-shirt", "trouser", "pullover", "dress", "coat",
                                      "sandal",  "shirt",   "sneaker",  "bag",   "ankle boot"};

const ls_dataset_kind ls_dataset_fashion_mnist = {
    {"fashion_mnist", 1, 28, 28, 10, clothes, NULL, LS_DATA_PUBLIC}, ls_idx_open, &fashion_mnist};
const ls_dataset_kind ls_dataset_mnist = {
    {"mnist", 1, 28, 28, 10, NULL, NULL, LS_DATA_PUBLIC}, ls_idx_open, &mnist};

static const char *const letters[] = {
    "0", "1", "2", "3", "4", "5", "6", "7", "8", "9", "A", "B", "C", "D", "E", "F",
    "G", "H", "I", "J", "K", "L", "M", "N", "O", "P", "Q", "R", "S", "T", "U", "V",
    "W", "X", "Y", "Z", "a", "b", "c", "d", "e", "f", "g", "h", "i", "j", "k", "l",
    "m", "n", "o", "p", "q", "r", "s", "t", "u", "v", "w", "x", "y", "z"};

const ls_dataset_kind ls_dataset_emnist = {
    {"emnist", 1, 28, 28, 62, letters, NULL, LS_DATA_PUBLIC}, ls_idx_open, &emnist};
