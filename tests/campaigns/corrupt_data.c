/* SPDX-License-Identifier: MIT */
/* Corrupted datasets: IDX and CIFAR-10's format, plain and compressed. The compared data of a
 * dataset is its shape, whether its payload is the published one, all images, and all labels. */
#include "campaigns/corrupt.h"
#include "data/kinds.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
    SIDE = 6,
    IMAGES_HEADER = 16,
    LABELS_HEADER = 8,
    CLASSES = 10,
    CIFAR_IMAGE = 3 * 32 * 32,
    CIFAR_RECORD = 1 + CIFAR_IMAGE
};

/* Comes before images and labels in the compared data of a split. */
typedef struct split_head {
    uint32_t rows, channels, height, width, payload;
    uint32_t image_bytes; /* in all */
} split_head;

static void add_split(blob *out, const ls_dataset *ds)
{
    const ls_dataset_info *info = ls_dataset_describe(ds);
    const ls_dataset_view view = ls_dataset_resident(ds);
    split_head head = {.rows = info->rows,
                       .channels = (uint32_t)info->channels,
                       .height = (uint32_t)info->height,
                       .width = (uint32_t)info->width,
                       .payload = info->payload,
                       .image_bytes = (uint32_t)(info->rows * ls_dataset_image_bytes(ds))};
    blob_add(out, &head, sizeof head);
    blob_add(out, view.images, head.image_bytes);
    for (uint32_t i = 0; i < info->rows; i++)
        blob_add(out, &(uint8_t){(uint8_t)view.labels[i]}, 1);
}

static int add_both(blob *out, int rc, ls_dataset *train, ls_dataset *test)
{
    if (rc == LS_OK) {
        add_split(out, train);
        add_split(out, test);
    }
    ls_dataset_close(train);
    ls_dataset_close(test);
    return rc;
}

/* The published one becomes a different one where anything was flipped, so a user is warned. */
static void mark_as_different(uint8_t *head, uint32_t payload)
{
    split_head h;
    memcpy(&h, head, sizeof h);
    h.payload = payload;
    memcpy(head, &h, sizeof h);
}

/* Whether `now` is `before` with the change at `at`, of the split that begins at `split`. */
static int is_flip(const change *c, const blob *before, const blob *now, size_t split, size_t at,
                   uint32_t payload)
{
    blob expected = {0};
    blob_add(&expected, before->data, before->size);
    expected.data[at] ^= (uint8_t)(1u << c->bit);
    mark_as_different(expected.data + split, payload);
    int is = now->size == expected.size && memcmp(now->data, expected.data, now->size) == 0;
    free(expected.data);
    return is;
}

static size_t second_split(const blob *before)
{
    split_head h;
    memcpy(&h, before->data, sizeof h);
    return sizeof h + h.image_bytes + h.rows;
}

/* ---- IDX ---- */

static const char *const *published;

static void make_split(blob *images, blob *labels, uint32_t rows, uint64_t seed)
{
    size_t pixels = (size_t)rows * SIDE * SIDE;
    uint8_t *body = malloc(pixels + rows);
    must(body != NULL, "get memory");
    random_bytes(body, pixels + rows, seed);
    put_big_endian(images, 0x803);
    put_big_endian(images, rows);
    put_big_endian(images, SIDE);
    put_big_endian(images, SIDE);
    blob_add(images, body, pixels);
    put_big_endian(labels, 0x801);
    put_big_endian(labels, rows);
    for (uint32_t i = 0; i < rows; i++)
        body[pixels + i] %= CLASSES;
    blob_add(labels, body + pixels, rows);
    free(body);
}

static void make_idx_files(family *f, unsigned scale, int compressed)
{
    static char hashes[4][LS_SHA256_HEX];
    static const char *hash[4];
    blob content[4] = {{0}};
    make_split(&content[0], &content[1], 20 * scale, 1);
    make_split(&content[2], &content[3], 5 * scale, 2);
    f->files = 4;
    for (int i = 0; i < 4; i++) {
        blob packed = {0};
        ls_sha256 h;
        ls_sha256_init(&h);
        ls_sha256_update(&h, content[i].data, content[i].size);
        ls_sha256_final_hex(&h, hashes[i]);
        hash[i] = hashes[i];
        if (compressed)
            compress_blob(&packed, &content[i]);
        subject_in_memory(&f->file[i], compressed ? &packed : &content[i]);
        free(packed.data);
        free(content[i].data);
    }
    published = hash;
}

static void make_idx(family *f, unsigned scale)
{
    make_idx_files(f, scale, 0);
}

static void make_idx_gzip(family *f, unsigned scale)
{
    make_idx_files(f, scale, 1);
}

static int read_idx(const family *f, blob *out, ls_error *err)
{
    const char *names[4];
    ls_dataset *train = NULL;
    ls_dataset *test = NULL;
    for (int i = 0; i < 4; i++)
        names[i] = strrchr(f->file[i].path, '/') + 1;
    const ls_idx_detail detail = {.files = {names, 4, {"-", "-"}, NULL}, .published = published};
    const ls_dataset_kind kind = {
        {"corrupt", 1, 28, 28, CLASSES, NULL, NULL, LS_DATA_PUBLIC}, ls_idx_open, &detail};
    const ls_dataset_spec spec = {.name = "corrupt", .path = "/proc/self/fd"};
    int rc = ls_dataset_open_kind(&train, &test, &kind, &spec, &corrupt_host, err);
    return add_both(out, rc, train, test);
}

/* Behind the header a flipped bit is a pixel's, or a label's that stays a label. */
static int explains_idx(const family *f, const change *c, const blob *before, const blob *now)
{
    (void)f;
    int labels = c->file % 2;
    size_t header = labels ? LABELS_HEADER : IMAGES_HEADER;
    size_t split = c->file < 2 ? 0 : second_split(before);
    split_head h;
    memcpy(&h, before->data + split, sizeof h);
    if (c->byte < header)
        return 0;
    size_t at = split + sizeof h + (labels ? h.image_bytes : 0) + c->byte - header;
    if (labels && now->size > at && now->data[at] >= CLASSES)
        return 0;
    return is_flip(c, before, now, split, at, LS_PAYLOAD_DIFFERS);
}

family corrupt_idx = {.name = "idx", .make = make_idx, .read = read_idx, .explains = explains_idx};

/* The check sum covers everything but gzip's own header: nothing that matters may pass. */
family corrupt_idx_gzip = {.name = "idx.gz", .make = make_idx_gzip, .read = read_idx};

/* ---- CIFAR-10 ---- */

static uint32_t records;

static void make_cifar_files(family *f, unsigned scale, int compressed)
{
    records = scale > 1 ? 2 : 1;
    f->files = 2;
    for (int i = 0; i < 2; i++) {
        static uint8_t bytes[2 * CIFAR_RECORD];
        blob content = {0};
        blob packed = {0};
        random_bytes(bytes, sizeof bytes, 3 + (uint64_t)i);
        for (uint32_t r = 0; r < records; r++)
            bytes[r * CIFAR_RECORD] = i == 0 ? 2 : 8; /* one bit from no class */
        blob_add(&content, bytes, records * CIFAR_RECORD);
        if (compressed)
            compress_blob(&packed, &content);
        subject_in_memory(&f->file[i], compressed ? &packed : &content);
        free(content.data);
        free(packed.data);
    }
}

static void make_cifar(family *f, unsigned scale)
{
    make_cifar_files(f, scale, 0);
}

static void make_cifar_gzip(family *f, unsigned scale)
{
    make_cifar_files(f, scale, 1);
}

static int read_cifar(const family *f, blob *out, ls_error *err)
{
    const char *names[2];
    ls_dataset *split[2] = {NULL, NULL};
    for (int i = 0; i < 2; i++)
        names[i] = strrchr(f->file[i].path, '/') + 1;
    const ls_cifar_detail detail = {
        .records = {records, records}, .labels = 1, .files = {names, 2, {"-", "-"}, NULL}};
    const ls_dataset_kind kind = {
        {"corrupt", 3, 32, 32, CLASSES, NULL, NULL, LS_DATA_PUBLIC}, ls_cifar_open, &detail};
    const ls_dataset_spec spec = {.name = "corrupt", .path = "/proc/self/fd"};
    int rc = ls_dataset_open_kind(&split[0], &split[1], &kind, &spec, &corrupt_host, err);
    return add_both(out, rc, split[0], split[1]);
}

static int explains_cifar(const family *f, const change *c, const blob *before, const blob *now)
{
    (void)f;
    size_t split = c->file == 0 ? 0 : second_split(before);
    size_t row = c->byte / CIFAR_RECORD;
    size_t column = c->byte % CIFAR_RECORD;
    size_t at = split + sizeof(split_head);
    at += column == 0 ? records * CIFAR_IMAGE + row : row * CIFAR_IMAGE + column - 1;
    if (column == 0 && now->size > at && now->data[at] >= CLASSES)
        return 0;
    return is_flip(c, before, now, split, at, LS_PAYLOAD_UNKNOWN);
}

family corrupt_cifar = {
    .name = "cifar", .make = make_cifar, .read = read_cifar, .explains = explains_cifar};
family corrupt_cifar_gzip = {.name = "cifar.gz", .make = make_cifar_gzip, .read = read_cifar};
