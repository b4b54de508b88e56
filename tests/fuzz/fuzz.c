/* SPDX-License-Identifier: MIT */
#define _GNU_SOURCE /* memfd_create; in this file alone */
#include "fuzz/fuzz.h"

#include "base/utf8.h"
#include "json/writer.h"

#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>
#include <zlib.h>

void fuzz_check(int kept, const char *promise)
{
    if (kept)
        return;
    fprintf(stderr, "broken promise: %s\n", promise);
    abort();
}

/* ---- refusals ---- */

static int is_line(const char *text)
{
    size_t n = strlen(text);
    for (size_t i = 0; i < n;) {
        size_t c = ls_utf8_length((const unsigned char *)text + i, n - i);
        if (c == 0 || (unsigned char)text[i] < 0x20)
            return 0;
        i += c;
    }
    return n > 0;
}

void fuzz_check_refusal(int status, const ls_error *err, const char *name)
{
    fuzz_check(status < 0, "a refusal has a negative status");
    fuzz_check(err->status == status, "a refusal's error has the status returned");
    fuzz_check(is_line(err->text), "a refusal's message is one line of UTF-8");
    if (strncmp(err->text, name, strlen(name)) == 0)
        return;
    fprintf(stderr, "%s\n", err->text);
    fuzz_check(0, "a refusal's message begins with the file's name");
}

static int number_follows(const char **text)
{
    const char *start = *text;
    while (isdigit((unsigned char)**text))
        ++*text;
    return *text > start;
}

static int names_byte(const char *text, const char *word)
{
    for (const char *at = strstr(text, word); at; at = strstr(at + 1, word)) {
        const char *p = at + strlen(word);
        if (number_follows(&p))
            return 1;
    }
    return 0;
}

int fuzz_names_place(const char *text, const char *name)
{
    size_t n = strlen(name);
    const char *p = text + n + 1;
    if (strncmp(text, name, n) == 0 && text[n] == ':' && number_follows(&p) && *p++ == ':' &&
        number_follows(&p) && *p == ':')
        return 1;
    return names_byte(text, "byte ") || names_byte(text, "offset ");
}

/* ---- PNG ---- */

static uint32_t big_endian(const uint8_t *p)
{
    return (uint32_t)p[0] << 24 | (uint32_t)p[1] << 16 | (uint32_t)p[2] << 8 | p[3];
}

void fuzz_mend_png(uint8_t *data, size_t size)
{
    for (size_t at = 8; size >= 12 && at <= size - 12;) {
        const size_t count = big_endian(data + at);
        if (count > size - at - 12)
            return;
        const uLong crc = crc32(0, data + at + 4, (uInt)count + 4);
        for (size_t i = 0; i < 4; i++)
            data[at + 8 + count + i] = (uint8_t)(crc >> (24 - 8 * i));
        at += 12 + count;
    }
}

/* ---- files ---- */

void fuzz_file_open(fuzz_file *f)
{
    f->fd = memfd_create("fuzz", MFD_CLOEXEC);
    fuzz_check(f->fd >= 0, "memfd_create works on this system");
    snprintf(f->name, sizeof f->name, "%d", f->fd);
    snprintf(f->path, sizeof f->path, FUZZ_FOLDER "/%s", f->name);
}

void fuzz_file_fill(const fuzz_file *f, const uint8_t *data, size_t size)
{
    int done = ftruncate(f->fd, 0) == 0 && pwrite(f->fd, data, size, 0) == (ssize_t)size;
    fuzz_check(done, "a file in memory can be written");
}

void fuzz_file_fill_gzip(const fuzz_file *f, const uint8_t *data, size_t size)
{
    z_stream z = {0};
    fuzz_check(deflateInit2(&z, 1, Z_DEFLATED, 15 + 16, 8, Z_DEFAULT_STRATEGY) == Z_OK,
               "there is memory for deflate");
    size_t room = deflateBound(&z, size);
    uint8_t *out = malloc(room);
    fuzz_check(out != NULL, "there is memory for compressed data");
    z.next_in = (uint8_t *)data;
    z.avail_in = (unsigned)size;
    z.next_out = out;
    z.avail_out = (unsigned)room;
    fuzz_check(deflate(&z, Z_FINISH) == Z_STREAM_END, "deflate fits its own bound");
    fuzz_file_fill(f, out, room - z.avail_out);
    deflateEnd(&z);
    free(out);
}

int fuzz_split(fuzz_pair *out, const uint8_t *data, size_t size)
{
    if (size < 3)
        return 0;
    size_t rest = size - 3;
    size_t first = (size_t)data[1] | (size_t)data[2] << 8;
    if (first > rest)
        first = rest;
    out->switches = data[0];
    out->data[0] = data + 3;
    out->size[0] = first;
    out->data[1] = data + 3 + first;
    out->size[1] = rest - first;
    return 1;
}
