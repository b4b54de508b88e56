/* SPDX-License-Identifier: MIT */
#define _DEFAULT_SOURCE /* for MAP_ANONYMOUS */
/* NumPy's archives of arrays: ZIP files (PKWARE's APPNOTE 6.3, sections 4.3 and 4.5.3) of .npy
 * files, stored or deflated. No size in the directory is trusted before it has been compared with
 * the file's size. All numbers are little-endian. */
#include "formats/arrays.h"

#include "base/error.h"
#include "hash/hash.h"
#include "hash/inflate.h"
#include "json/json.h"

#include <stdio.h>
#include <string.h>
#include <sys/mman.h>

enum {
    END = 22, /* bytes of the END record, which is at the end of a file */
    END64 = 56,
    LOCATOR64 = 20, /* bytes of the record that locates an END64 record */
    ENTRY = 46,     /* bytes of an entry of the directory */
    LOCAL = 30,     /* bytes of the header before a member */
    STORED = 0,
    DEFLATED = 8,
    RATIO = 1032 /* largest ratio of unpacked to packed bytes: deflate needs at least 2 bits for 258
                  * bytes */
};

/* A ZIP archive in memory. */
typedef struct archive {
    const char *path;
    const uint8_t *bytes;
    size_t count;
    uint64_t directory, entries; /* offset of the directory; its number of entries */
    ls_error *err;
} archive;

/* An entry of the directory. */
typedef struct member {
    const char *name; /* not zero-terminated */
    size_t length;    /* length of the name in bytes */
    unsigned method, flags;
    uint32_t crc;
    uint64_t packed, bytes, header; /* sizes in bytes; offset of the local header */
} member;

static uint64_t number(const uint8_t *b, size_t n)
{
    uint64_t v = 0;
    for (size_t i = n; i > 0; i--)
        v = v << 8 | b[i - 1];
    return v;
}

static int fail_zip(const archive *z, uint64_t offset, const char *expected)
{
    return ls_fail(z->err, LS_EDATA, "%.300s: offset %llu: expected %s; the .npz file is damaged",
                   z->path, (unsigned long long)offset, expected);
}

bool ls_array_is_npz(const void *bytes, size_t count)
{
    return count >= 4 && (memcmp(bytes, "PK\3\4", 4) == 0 || memcmp(bytes, "PK\5\6", 4) == 0);
}

/* ---- the directory -------------------------------------------------------------------------- */

/* Finds the directory of a file whose offset or number of entries does not fit into the END record:
 * an END64 record then precedes it. */
static int read_end64(archive *z, size_t end)
{
    if (end < LOCATOR64 || memcmp(z->bytes + end - LOCATOR64, "PK\6\7", 4) != 0)
        return fail_zip(z, end, "the place of a directory of 64 bits");
    const uint64_t at = number(z->bytes + end - LOCATOR64 + 8, 8);
    if (at > z->count || z->count - at < END64 || memcmp(z->bytes + at, "PK\6\6", 4) != 0)
        return fail_zip(z, end - LOCATOR64, "a directory of 64 bits in the file");
    z->entries = number(z->bytes + at + 32, 8);
    z->directory = number(z->bytes + at + 48, 8);
    return LS_OK;
}

/* Finds the directory by searching the file backwards for the END record. A comment of up to 65535
 * bytes may follow that record; usually it is empty. */
static int find_directory(archive *z)
{
    const size_t most = z->count < END + 65535 ? z->count : END + 65535;
    size_t back = END;
    while (back <= most && memcmp(z->bytes + z->count - back, "PK\5\6", 4) != 0)
        back++;
    if (back > most)
        return fail_zip(z, z->count, "the directory at the file's end, which is cut off");
    const size_t end = z->count - back;
    z->entries = number(z->bytes + end + 10, 2);
    z->directory = number(z->bytes + end + 16, 4);
    int status = LS_OK;
    if (z->entries == 0xFFFF || z->directory == 0xFFFFFFFF)
        status = read_end64(z, end);
    if (status == LS_OK && z->directory > z->count)
        status = fail_zip(z, end + 16, "a directory in the file");
    return status;
}

/* Reads the sizes and the offset that do not fit into 32 bits. They are in the extra field, which
 * follows the name. */
static void read_large(member *m, const uint8_t *extra, size_t count)
{
    uint64_t *const large[] = {&m->bytes, &m->packed, &m->header};
    for (size_t at = 0; count >= 4 && at <= count - 4;) {
        const size_t id = number(extra + at, 2), n = number(extra + at + 2, 2);
        if (n > count - at - 4)
            return;
        size_t from = at + 4;
        for (size_t k = 0; id == 1 && k < 3; k++)
            if (*large[k] == 0xFFFFFFFF && from + 8 <= at + 4 + n) {
                *large[k] = number(extra + from, 8);
                from += 8;
            }
        at += 4 + n;
    }
}

/* Reads the entry at offset *at of the directory, and advances *at to the next entry. */
static int read_entry(const archive *z, uint64_t *at, member *m)
{
    if (*at > z->count || z->count - *at < ENTRY || memcmp(z->bytes + *at, "PK\1\2", 4) != 0)
        return fail_zip(z, *at, "an entry of the directory");
    const uint8_t *e = z->bytes + *at;
    const size_t name = number(e + 28, 2), extra = number(e + 30, 2), comment = number(e + 32, 2);
    if (z->count - *at - ENTRY < name + extra + comment)
        return fail_zip(z, *at, "an entry that ends in the file");
    *m = (member){.name = (const char *)e + ENTRY,
                  .length = name,
                  .flags = (unsigned)number(e + 8, 2),
                  .method = (unsigned)number(e + 10, 2),
                  .crc = (uint32_t)number(e + 16, 4),
                  .packed = number(e + 20, 4),
                  .bytes = number(e + 24, 4),
                  .header = number(e + 42, 4)};
    read_large(m, e + ENTRY + name, extra);
    if (name > 4 && memcmp(m->name + name - 4, ".npy", 4) == 0)
        m->length -= 4;
    *at += ENTRY + name + extra + comment;
    return LS_OK;
}

static bool is_called(const member *m, const char *name)
{
    const size_t n = strlen(name);
    const bool whole = n == m->length + 4 && strcmp(name + m->length, ".npy") == 0;
    return (n == m->length || whole) && memcmp(m->name, name, m->length) == 0;
}

/* Finds the first of `names` that the archive contains, and sets *found. */
static int find_member(const archive *z, const char *const *names, member *out, bool *found)
{
    *found = false;
    for (size_t n = 0; names[n] && !*found; n++) {
        uint64_t at = z->directory;
        for (uint64_t i = 0; i < z->entries && !*found; i++) {
            int status = read_entry(z, &at, out);
            if (status)
                return status;
            *found = is_called(out, names[n]);
        }
    }
    return LS_OK;
}

/* Reports that no array has the name. The message lists up to ten names that
 * the archive contains. */
static int fail_missing(const archive *z, const char *const *names)
{
    char list[400] = "";
    size_t used = 0;
    uint64_t at = z->directory;
    member m;
    for (uint64_t i = 0; i < z->entries && i < 10 && read_entry(z, &at, &m) == LS_OK; i++)
        used += (size_t)snprintf(list + used, sizeof list - used, "%s\"%.*s\"", used ? ", " : "",
                                 m.length < 30 ? (int)m.length : 30, m.name);
    ls_fail(z->err, LS_EDATA,
            "%.200s: offset %llu: there is no array \"%.60s\" in it, but %s%s; name "
            "one in data.x or data.y, and elsewhere as FILE.npz/NAME",
            z->path, (unsigned long long)z->directory, names[0], list,
            z->entries > 10 ? ", …" : "");
    return LS_EDATA;
}

/* ---- members --------------------------------------------------------------------------------- */

/* Decompresses a member into an anonymous mapping, which the array then owns. */
static int unpack(ls_array *a, const archive *z, const member *m, const uint8_t *from)
{
    if (m->bytes == 0 || m->bytes / RATIO > m->packed || m->bytes > PTRDIFF_MAX)
        return fail_zip(z, m->header, "as many bytes as deflate can give");
    void *map =
        mmap(NULL, (size_t)m->bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (map == MAP_FAILED)
        return ls_fail(z->err, LS_ENOMEM, "%.300s: no memory for the %llu bytes of an array",
                       z->path, (unsigned long long)m->bytes);
    if (ls_inflate(from, (size_t)m->packed, map, (size_t)m->bytes)) {
        ls_array_close(a);
        a->map = map;
        a->map_bytes = (size_t)m->bytes;
        return LS_OK;
    }
    munmap(map, (size_t)m->bytes);
    return fail_zip(z, m->header, "deflated data that make as many bytes as the directory says");
}

static int fail_member(const archive *z, const member *m, const char *what, const char *cure)
{
    ls_fail(z->err, LS_EUNSUPPORTED, "%.300s: offset %llu: \"%.*s\" is %s; %s", z->path,
            (unsigned long long)m->header, m->length < 60 ? (int)m->length : 60, m->name, what,
            cure);
    return LS_EUNSUPPORTED;
}

/* Finds the first byte of a member's data. */
static int find_bytes(const archive *z, const member *m, const uint8_t **out)
{
    if (m->flags & 1)
        return fail_member(z, m, "encrypted", "save it without a password");
    if (m->method != STORED && m->method != DEFLATED)
        return fail_member(z, m, "compressed by another method than deflate",
                           "save it by numpy.savez_compressed");
    if (m->header > z->count || z->count - m->header < LOCAL ||
        memcmp(z->bytes + m->header, "PK\3\4", 4) != 0)
        return fail_zip(z, m->header, "a member's header");
    const uint8_t *h = z->bytes + m->header;
    const uint64_t skip = LOCAL + number(h + 26, 2) + number(h + 28, 2);
    if (skip > z->count - m->header || m->packed > z->count - m->header - skip ||
        (m->method == STORED && m->packed != m->bytes))
        return fail_zip(z, m->header, "a member that ends in the file");
    *out = h + skip;
    return LS_OK;
}

static int read_member(ls_array *a, const archive *z, const member *m)
{
    const uint8_t *bytes = NULL;
    char name[64];
    snprintf(name, sizeof name, "%.*s", m->length < 60 ? (int)m->length : 60, m->name);
    int status = find_bytes(z, m, &bytes);
    if (status == LS_OK && m->method == DEFLATED) {
        status = unpack(a, z, m, bytes);
        bytes = a->map;
    }
    if (status == LS_OK && ls_crc32(0, bytes, (size_t)m->bytes) != m->crc)
        status = fail_zip(z, m->header, "a member of another checksum");
    if (status)
        return status;
    a->member = name;
    /* if the member was decompressed, the archive is no longer mapped */
    status = ls_array_parse_npy(a, bytes, (size_t)m->bytes, z->err);
    a->member = NULL;
    return status;
}

/* ---- functions of arrays.h ------------------------------------------------------------------- */

int ls_array_parse_npz(ls_array *a, const void *bytes, size_t count, const char *const *names,
                       ls_error *err)
{
    archive z = {.path = a->path, .bytes = bytes, .count = count, .err = err};
    member m;
    bool found = false, any = false;
    for (size_t n = 0; names[n]; n++)
        any |= !names[n][0];
    int status = find_directory(&z);
    if (status == LS_OK)
        status = find_member(&z, names, &m, &found);
    if (status == LS_OK && !found && z.entries == 1 && any) {
        uint64_t at = z.directory;
        status = read_entry(&z, &at, &m);
        found = status == LS_OK;
    }
    if (status == LS_OK && !found)
        return fail_missing(&z, names);
    return status ? status : read_member(a, &z, &m);
}

bool ls_npz_has(const void *bytes, size_t count, const char *const *names)
{
    archive z = {.path = "", .bytes = bytes, .count = count};
    member m;
    bool found = false;
    return find_directory(&z) == LS_OK && find_member(&z, names, &m, &found) == LS_OK && found;
}
