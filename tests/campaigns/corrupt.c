/* SPDX-License-Identifier: MIT */
/* Campaign: truncates small valid files and flips their bits; see corrupt.h.
 *
 *     corrupt [--long] [--only FAMILY]
 *
 * Prints the counts as JSON. The long form has more than a million mutants. Exit codes: 0; 1 for a
 * violation, or lost memory or descriptors. A crash, or ten seconds without an answer, ends the
 * program. */
#define _GNU_SOURCE /* memfd_create; in this file alone */
#include "campaigns/corrupt.h"

#include "base/rng.h"
#include "fuzz/fuzz.h"

#include <dirent.h>
#include <fcntl.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>
#include <zlib.h>

enum { SECONDS_TO_ANSWER = 10, SHOWN_VIOLATIONS = 5 };

/* A sanitizer looks at each cut and at two bits of a byte, for the time that it takes. */
#ifdef __SANITIZE_ADDRESS__
enum { BIT_STEP = 4 };
#else
enum { BIT_STEP = 1 };
#endif

static family *const families[] = {
    &corrupt_idx,    &corrupt_idx_gzip, &corrupt_cifar,       &corrupt_cifar_gzip,
    &corrupt_config, &corrupt_model,    &corrupt_safetensors, &corrupt_checkpoint,
};
enum { FAMILIES = sizeof families / sizeof *families };

/* ---- memory ---- */

static atomic_long blocks;

static void *counted_alloc(void *user, size_t bytes, size_t align)
{
    (void)user;
    void *memory = aligned_alloc(align, (bytes + align - 1) / align * align);
    if (memory)
        atomic_fetch_add(&blocks, 1);
    return memory;
}

static void counted_free(void *user, void *memory)
{
    (void)user;
    free(memory);
    atomic_fetch_sub(&blocks, 1);
}

const ls_host corrupt_host = {
    .size = sizeof(ls_host), .alloc = counted_alloc, .free = counted_free};

void must(int done, const char *what)
{
    if (done)
        return;
    fprintf(stderr, "corrupt: cannot %s\n", what);
    exit(2);
}

void blob_add(blob *b, const void *bytes, size_t count)
{
    if (b->size + count > b->capacity) {
        b->capacity = 2 * (b->size + count);
        b->data = realloc(b->data, b->capacity);
        must(b->data != NULL, "get memory");
    }
    if (count > 0)
        memcpy(b->data + b->size, bytes, count);
    b->size += count;
}

void blob_add_text(blob *b, const char *text)
{
    blob_add(b, text, strlen(text) + 1);
}

/* ---- files ---- */

static void keep_bytes(subject *s, const uint8_t *bytes, size_t size)
{
    s->bytes = malloc(size > 0 ? size : 1);
    must(s->bytes != NULL, "get memory");
    memcpy(s->bytes, bytes, size);
    s->size = size;
}

void subject_in_memory(subject *s, const blob *content)
{
    s->fd = memfd_create("corrupt", MFD_CLOEXEC);
    must(s->fd >= 0, "make a file in memory");
    snprintf(s->path, sizeof s->path, FUZZ_FOLDER "/%d", s->fd);
    must(pwrite(s->fd, content->data, content->size, 0) == (ssize_t)content->size, "write");
    keep_bytes(s, content->data, content->size);
}

void subject_on_disk(subject *s, const char *path)
{
    struct stat st;
    must(strlen(path) < sizeof s->path, "remember a long path");
    strcpy(s->path, path);
    s->fd = open(path, O_RDWR | O_CLOEXEC);
    must(s->fd >= 0 && fstat(s->fd, &st) == 0, "open a file");
    uint8_t *bytes = malloc((size_t)st.st_size);
    must(bytes && pread(s->fd, bytes, (size_t)st.st_size, 0) == st.st_size, "read a file");
    keep_bytes(s, bytes, (size_t)st.st_size);
    free(bytes);
}

void random_bytes(uint8_t *out, size_t count, uint64_t seed)
{
    uint32_t words[4];
    for (size_t i = 0; i < count; i++) {
        if (i % 16 == 0)
            ls_rng_words(words, seed, LS_STREAM_SYNTHETIC, 0, i / 16);
        out[i] = (uint8_t)(words[i / 4 % 4] >> 8 * (i % 4));
    }
}

void put_big_endian(blob *b, uint32_t value)
{
    for (int shift = 24; shift >= 0; shift -= 8)
        blob_add(b, &(uint8_t){(uint8_t)(value >> shift)}, 1);
}

void compress_blob(blob *out, const blob *in)
{
    z_stream z = {0};
    uint8_t chunk[4096];
    int rc = deflateInit2(&z, 9, Z_DEFLATED, 15 + 16, 8, Z_DEFAULT_STRATEGY);
    must(rc == Z_OK, "compress");
    z.next_in = in->data;
    z.avail_in = (unsigned)in->size;
    do {
        z.next_out = chunk;
        z.avail_out = sizeof chunk;
        rc = deflate(&z, Z_FINISH);
        blob_add(out, chunk, sizeof chunk - z.avail_out);
    } while (rc == Z_OK);
    must(rc == Z_STREAM_END, "compress");
    deflateEnd(&z);
}

/* ---- changes ---- */

/* Memory of the exact size, so that a sanitizer sees a byte too many. */
static void make_change(family *f, const change *c)
{
    subject *s = &f->file[c->file];
    if (c->bit >= 0) {
        s->bytes[c->byte] ^= (uint8_t)(1u << c->bit);
        if (s->fd >= 0)
            must(pwrite(s->fd, s->bytes + c->byte, 1, (off_t)c->byte) == 1, "write");
        return;
    }
    uint8_t *cut = malloc(c->byte > 0 ? c->byte : 1);
    must(cut != NULL, "get memory");
    memcpy(cut, s->bytes, c->byte);
    free(s->bytes);
    s->bytes = cut;
    s->size = c->byte;
    if (s->fd >= 0)
        must(ftruncate(s->fd, (off_t)c->byte) == 0, "cut");
}

/* `cut_off` is the byte that a cut took away. */
static void undo_change(family *f, const change *c, const blob *original)
{
    subject *s = &f->file[c->file];
    if (c->bit >= 0) {
        make_change(f, c);
        return;
    }
    free(s->bytes);
    keep_bytes(s, original->data, original->size);
    if (s->fd >= 0)
        must(pwrite(s->fd, s->bytes + c->byte, s->size - c->byte, (off_t)c->byte) ==
                 (ssize_t)(s->size - c->byte),
             "write");
}

/* ---- verdicts ---- */

static void show_violation(family *f, const change *c, const char *what, const char *detail)
{
    if (f->violations++ >= SHOWN_VIOLATIONS)
        return;
    fprintf(stderr, "%s: file %d, byte %zu, ", f->name, c->file, c->byte);
    if (c->bit < 0)
        fprintf(stderr, "cut");
    else
        fprintf(stderr, "bit %d", c->bit);
    fprintf(stderr, ": %s: %s\n", what, detail);
}

static int names_place(const char *text, const subject *s)
{
    return fuzz_names_place(text, s->path) || strstr(text, "found an empty file") != NULL;
}

/* Two files that do not fit together may be told by either one's name. */
static int is_explained(const family *f, const ls_error *err)
{
    for (int i = 0; i < f->files; i++) {
        const subject *s = &f->file[i];
        if (strstr(err->text, s->name ? s->name : s->path) &&
            (f->names_place ? f->names_place : names_place)(err->text, s))
            return 1;
    }
    return 0;
}

static void judge(family *f, const change *c, const blob *before, blob *now)
{
    ls_error err = {0};
    now->size = 0;
    alarm(SECONDS_TO_ANSWER);
    int rc = f->read(f, now, &err);
    f->mutants++;
    if (atomic_load(&blocks) != 0) {
        show_violation(f, c, "memory is lost", err.text);
        atomic_store(&blocks, 0);
    }
    if (rc != LS_OK) {
        f->refused++;
        if (rc > 0 || err.status != rc || !is_explained(f, &err))
            show_violation(f, c, "refused without file and place", err.text);
    } else if (now->size == before->size && memcmp(now->data, before->data, now->size) == 0) {
        f->same++;
    } else if (f->explains && c->bit >= 0 && f->explains(f, c, before, now)) {
        f->payload++;
    } else {
        show_violation(f, c, "accepted, and it means something else", "");
    }
}

static void run_file(family *f, int file, const blob *before)
{
    blob now = {0};
    blob original = {0};
    blob_add(&original, f->file[file].bytes, f->file[file].size);
    for (size_t byte = 0; byte < original.size; byte++) {
        for (int bit = -1; bit < 8; bit += BIT_STEP) {
            const change c = {file, byte, bit};
            make_change(f, &c);
            judge(f, &c, before, &now);
            undo_change(f, &c, &original);
        }
    }
    free(original.data);
    free(now.data);
}

static int open_descriptors(void)
{
    int count = 0;
    DIR *folder = opendir(FUZZ_FOLDER);
    must(folder != NULL, "look at descriptors");
    while (readdir(folder))
        count++;
    closedir(folder);
    return count;
}

static void run_family(family *f, unsigned scale)
{
    blob before = {0};
    ls_error err = {0};
    f->make(f, scale);
    int descriptors = open_descriptors();
    if (f->read(f, &before, &err) != LS_OK) {
        fprintf(stderr, "%s: the unharmed files are refused: %s\n", f->name, err.text);
        f->violations++;
        return;
    }
    for (int i = 0; i < f->files; i++)
        run_file(f, i, &before);
    if (open_descriptors() != descriptors) {
        fprintf(stderr, "%s: descriptors are lost\n", f->name);
        f->violations++;
    }
    free(before.data);
    for (int i = 0; i < f->files; i++) {
        if (f->file[i].fd >= 0)
            close(f->file[i].fd);
        free(f->file[i].bytes);
    }
    if (f->finish)
        f->finish(f);
}

/* ---- the whole ---- */

static void print_counts(const char *key, const family *f)
{
    printf("%s\"mutants\": %lu, \"refused\": %lu, \"same\": %lu, \"payload\": %lu, "
           "\"violations\": %lu",
           key, f->mutants, f->refused, f->same, f->payload, f->violations);
}

int main(int argc, char **argv)
{
    int long_form = 0;
    const char *only = NULL;
    family sum = {0};
    for (int i = 1; i < argc; i++) {
        if (strcmp(argv[i], "--long") == 0)
            long_form = 1;
        else if (strcmp(argv[i], "--only") == 0 && i + 1 < argc)
            only = argv[++i];
        else
            must(0, "understand the arguments: corrupt [--long] [--only FAMILY]");
    }
    printf("{\"campaign\": \"corrupt\", \"form\": \"%s\", \"families\": [",
           long_form ? "long" : "short");
    for (int i = 0; i < FAMILIES; i++) {
        family *f = families[i];
        if (only && strcmp(only, f->name) != 0)
            continue;
        run_family(f, long_form ? 32 : 1);
        printf("%s\n  {\"family\": \"%s\", ", sum.mutants ? "," : "", f->name);
        print_counts("", f);
        printf("}");
        fflush(stdout);
        sum.mutants += f->mutants;
        sum.refused += f->refused;
        sum.same += f->same;
        sum.payload += f->payload;
        sum.violations += f->violations;
    }
    print_counts("],\n ", &sum);
    printf("}\n");
    return sum.violations > 0;
}
