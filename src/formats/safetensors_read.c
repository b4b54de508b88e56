/* SPDX-License-Identifier: MIT */
/* Reads safetensors files. Before any tensor is read, the whole header is checked: the tensors must
 * cover the rest of the file without gaps and overlaps. The file's checksum, if it has one, is
 * verified as well. The file is read, not mapped: if it shrinks meanwhile, the result is an error
 * instead of SIGBUS. */
#include "formats/safetensors.h"

#include "base/error.h"
#include "base/host.h"
#include "base/plain_file.h"
#include "formats/safetensors_format.h"
#include "hash/hash.h"
#include "json/json.h"

#include <errno.h>
#include <math.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* ---- the file ------------------------------------------------------------------------------- */

/* Functions that read an opened file work on a copy of this structure with their own `err`. */
typedef struct ls_tensor_file {
    char *path;
    int fd;
    uint64_t size; /* size of the file in bytes */
    uint64_t data; /* offset of the first tensor */
    bool strict;   /* accept only files that ls_tensor_file_write can have written */
    ls_json *header;
    const ls_host *host;
    ls_error *err;
} file;

static int read_at(const file *f, void *out, size_t count, uint64_t offset)
{
    char why[LS_REASON];
    char *p = out;
    while (count > 0) {
        ssize_t n = pread(f->fd, p, count, (off_t)offset);
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0)
            return ls_fail(f->err, LS_EIO, "%s: cannot be read: %s", f->path,
                           ls_reason(why, errno));
        if (n == 0)
            return ls_fail(f->err, LS_EDATA, "%s: offset %llu: the file ends here unexpectedly",
                           f->path, (unsigned long long)offset);
        p += n;
        count -= (size_t)n;
        offset += (uint64_t)n;
    }
    return LS_OK;
}

/* Reads the header's length from the start of the file. */
static int read_length(file *f, size_t *length)
{
    uint8_t bytes[PREFACE];
    if (f->size < PREFACE)
        return ls_fail(f->err, LS_EDATA,
                       "%s: offset 0: expected 8 bytes with the header's length, found %llu; the "
                       "file is cut off or no safetensors file",
                       f->path, (unsigned long long)f->size);
    int status = read_at(f, bytes, sizeof bytes, 0);
    if (status != LS_OK)
        return status;
    uint64_t n = (uint64_t)get_u32(bytes + 4) << 32 | get_u32(bytes);
    if (memcmp(bytes, "PK\3\4", 4) == 0)
        return ls_fail(f->err, LS_EDATA,
                       "%s: offset 0: expected a safetensors file, found a zip archive, as "
                       "torch.save writes it; write it with "
                       "safetensors.torch.save_file(model.state_dict(), FILE)",
                       f->path);
    if (n > f->size - PREFACE || n > MAX_HEADER || n < 2)
        return ls_fail(
            f->err, LS_EDATA,
            "%s: offset 0: expected a header of 2 to %llu bytes, found %llu; the file "
            "is cut off or no safetensors file",
            f->path,
            (unsigned long long)(f->size - PREFACE < MAX_HEADER ? f->size - PREFACE : MAX_HEADER),
            (unsigned long long)n);
    *length = (size_t)n;
    f->data = PREFACE + n;
    return LS_OK;
}

static int read_header(file *f)
{
    size_t length = 0;
    ls_error why;
    int status = read_length(f, &length);
    if (status != LS_OK)
        return status;
    char *text = ls_alloc(f->host, length);
    if (!text)
        return ls_fail(f->err, LS_ENOMEM, "%s: no memory for its header", f->path);
    status = read_at(f, text, length, PREFACE);
    if (status == LS_OK) {
        status = ls_json_parse(&f->header, "header", text, length, f->host, &why);
        if (status == LS_ENOMEM)
            ls_fail(f->err, status, "%s", why.text);
        else if (status != LS_OK)
            status = ls_fail(f->err, LS_EDATA, "%s: offset 8: %s", f->path, why.text);
    }
    ls_free(f->host, text);
    return status;
}

/* ---- the header's entries ------------------------------------------------------------------- */

/* The bytes of a tensor. */
typedef struct span {
    uint64_t begin, end; /* offsets from the start of the data */
} span;

static int fail_entry(const file *f, const cJSON *entry, const char *text)
{
    return ls_fail(f->err, LS_EDATA, "%s: offset 8: tensor \"%.80s\": %s", f->path, entry->string,
                   text);
}

/* Reads a whole number from 0 to `max`. */
static bool whole(const cJSON *node, double max, uint64_t *out)
{
    if (!cJSON_IsNumber(node) || !(node->valuedouble >= 0 && node->valuedouble <= max))
        return false;
    *out = (uint64_t)node->valuedouble;
    return (double)*out == node->valuedouble;
}

static int read_span(const file *f, const cJSON *entry, span *out)
{
    const cJSON *offsets = cJSON_GetObjectItemCaseSensitive(entry, "data_offsets");
    const double max = (double)(f->size - f->data);
    if (!cJSON_IsObject(entry))
        return fail_entry(f, entry, "expected an object with dtype, shape and data_offsets");
    if (cJSON_GetArraySize(offsets) != 2 || !cJSON_IsArray(offsets) ||
        !whole(offsets->child, max, &out->begin) || !whole(offsets->child->next, max, &out->end) ||
        out->begin > out->end)
        return fail_entry(f, entry,
                          "expected data_offsets [begin, end] inside the file; it is cut off or "
                          "damaged");
    return LS_OK;
}

static int by_begin(const void *a, const void *b)
{
    const span *x = a;
    const span *y = b;
    if (x->begin != y->begin)
        return x->begin < y->begin ? -1 : 1;
    return (x->end > y->end) - (x->end < y->end);
}

/* Checks that tensors have neither gaps nor overlaps between them, and that no bytes
 * follow the last one. */
static int check_tiling(const file *f, span *spans, size_t count)
{
    uint64_t end = 0;
    qsort(spans, count, sizeof *spans, by_begin);
    for (size_t i = 0; i < count; i++) {
        if (spans[i].begin != end)
            return ls_fail(f->err, LS_EDATA,
                           "%s: offset %llu: expected a tensor to begin here, but the next one "
                           "begins at %llu; the header is damaged",
                           f->path, (unsigned long long)(f->data + end),
                           (unsigned long long)(f->data + spans[i].begin));
        end = spans[i].end;
    }
    if (f->data + end != f->size)
        return ls_fail(f->err, LS_EDATA,
                       "%s: offset %llu: expected the file to end here, found %llu more bytes",
                       f->path, (unsigned long long)(f->data + end),
                       (unsigned long long)(f->size - f->data - end));
    return LS_OK;
}

static bool is_metadata(const cJSON *entry)
{
    return strcmp(entry->string, "__metadata__") == 0;
}

static int check_header(const file *f)
{
    const cJSON *root = ls_json_root(f->header);
    size_t count = 0;
    int status = LS_OK;
    if (!cJSON_IsObject(root))
        return ls_fail(f->err, LS_EDATA, "%s: offset 8: expected an object, found %s", f->path,
                       ls_json_kind(root));
    span *spans = ls_alloc_array(f->host, (size_t)cJSON_GetArraySize(root), sizeof *spans);
    if (!spans)
        return ls_fail(f->err, LS_ENOMEM, "%s: no memory for its header", f->path);
    for (const cJSON *e = root->child; e && status == LS_OK; e = e->next)
        if (!is_metadata(e))
            status = read_span(f, e, &spans[count++]);
    if (status == LS_OK)
        status = check_tiling(f, spans, count);
    ls_free(f->host, spans);
    return status;
}

/* ---- one tensor ----------------------------------------------------------------------------- */

static float widen_half(uint16_t h)
{
    uint32_t sign = (uint32_t)(h & 0x8000u) << 16;
    uint32_t exponent = (h >> 10) & 0x1F;
    uint32_t fraction = h & 0x3FFu;
    uint32_t bits = sign | (exponent + 112) << 23 | fraction << 13;
    float value;
    if (exponent == 0) { /* zero or subnormal: a multiple of 2⁻²⁴ */
        value = (float)fraction * 0x1p-24f;
        return sign ? -value : value;
    }
    if (exponent == 31) /* infinite or NaN */
        bits = sign | 0x7F800000u | fraction << 13;
    memcpy(&value, &bits, sizeof value);
    return value;
}

/* The type of a number in the file. */
typedef enum number { F32, F16, BF16, NUMBERS } number;

static const char *const number_names[NUMBERS] = {"F32", "F16", "BF16"};

static number number_of(const cJSON *entry)
{
    const cJSON *dtype = cJSON_GetObjectItemCaseSensitive(entry, "dtype");
    int n = 0;
    while (n < NUMBERS &&
           !(cJSON_IsString(dtype) && strcmp(dtype->valuestring, number_names[n]) == 0))
        n++;
    return (number)n;
}

static size_t width_of(number n)
{
    return n == F32 ? 4 : 2;
}

static void decode(float *out, const uint8_t *bytes, size_t count, number n)
{
    for (size_t i = 0; i < count; i++) {
        const uint16_t half = (uint16_t)(bytes[2 * i] | bytes[2 * i + 1] << 8);
        const uint32_t bits = n == F32 ? get_u32(bytes + 4 * i) : (uint32_t)half << 16;
        if (n == F16)
            out[i] = widen_half(half);
        else
            memcpy(&out[i], &bits, sizeof bits);
    }
}

static int read_values(const file *f, float *out, size_t count, number kind, uint64_t offset)
{
    const size_t width = width_of(kind);
    uint8_t bytes[4 * CHUNK];
    for (size_t done = 0; done < count;) {
        size_t n = count - done < CHUNK ? count - done : CHUNK;
        int status = read_at(f, bytes, n * width, offset + done * width);
        if (status != LS_OK)
            return status;
        decode(out + done, bytes, n, kind);
        done += n;
    }
    return LS_OK;
}

static bool same_shape(const cJSON *shape, const ls_tensor_entry *p)
{
    uint64_t n;
    if (!cJSON_IsArray(shape) || cJSON_GetArraySize(shape) != p->rank)
        return false;
    const cJSON *node = shape->child;
    for (int i = 0; i < p->rank; i++, node = node->next)
        if (!whole(node, 2147483647.0, &n) || n != (uint64_t)p->dim[i])
            return false;
    return true;
}

static const char *shape_text(char out[64], const ls_tensor_entry *p)
{
    int n = 0;
    out[0] = '\0';
    for (int i = 0; i < p->rank; i++)
        n += snprintf(out + n, 64 - (size_t)n, "%s%d", i ? ", " : "[", p->dim[i]);
    snprintf(out + n, 64 - (size_t)n, "]");
    return out;
}

/* Writes the place of number `i` of the tensor: its index in each dimension, such as "[3, 0]". */
static const char *place_text(char out[64], size_t i, const ls_tensor_entry *p)
{
    int n = 0;
    size_t rest = p->count;
    out[0] = '\0';
    for (int d = 0; d < p->rank; d++) {
        rest /= (size_t)p->dim[d];
        n += snprintf(out + n, 64 - (size_t)n, "%s%zu", d ? ", " : "[", i / rest);
        i %= rest;
    }
    snprintf(out + n, 64 - (size_t)n, "]");
    return out;
}

/* Fails if a number of the tensor that was read is NaN or infinite. No training run saves such
 * weights, and none can go on from them. */
static int check_finite(const file *f, const cJSON *entry, const float *values,
                        const ls_tensor_entry *p)
{
    char text[160], place[64];
    size_t i = 0;
    while (i < p->count && isfinite(values[i]))
        i++;
    if (i == p->count)
        return LS_OK;
    snprintf(text, sizeof text,
             "expected finite numbers, found %g at %s; use a copy of the file from before the "
             "training diverged",
             (double)values[i], place_text(place, i, p));
    return fail_entry(f, entry, text);
}

static int load_tensor(const file *f, const ls_tensor_set *set, const ls_tensor_entry *p)
{
    char name[TENSOR_NAME];
    char text[192];
    char shape[64];
    span at;
    snprintf(name, sizeof name, "%s%s", set->prefix, p->name);
    const cJSON *entry = cJSON_GetObjectItemCaseSensitive(ls_json_root(f->header), name);
    if (!entry)
        return ls_fail(f->err, LS_EDATA,
                       "%s: offset 8: there is no tensor \"%s\"; is it the file of another model?",
                       f->path, name);
    const number kind = number_of(entry);
    if (f->strict && kind != F32)
        return fail_entry(f, entry, "expected dtype F32; use another copy of the file");
    if (kind == NUMBERS)
        return fail_entry(f, entry, "expected dtype F32, F16 or BF16; convert it");
    if (!same_shape(cJSON_GetObjectItemCaseSensitive(entry, "shape"), p)) {
        snprintf(text, sizeof text, "expected shape %s; is it the file of another model?",
                 shape_text(shape, p));
        return fail_entry(f, entry, text);
    }
    int status = read_span(f, entry, &at);
    if (status != LS_OK)
        return status;
    if (at.end - at.begin != p->count * width_of(kind)) {
        snprintf(text, sizeof text, "expected %zu bytes for its shape and dtype, found %llu",
                 p->count * width_of(kind), (unsigned long long)(at.end - at.begin));
        return fail_entry(f, entry, text);
    }
    status = read_values(f, set->to + p->offset, p->count, kind, f->data + at.begin);
    return status ? status : check_finite(f, entry, set->to + p->offset, p);
}

/* Opens the file and checks its header, but not the values of the tensors. */
static int open_checked(file *f)
{
    int status = ls_open_to_read(&f->fd, &f->size, f->path, "a safetensors file", LS_EDATA, f->err);
    if (status == LS_OK)
        status = read_header(f);
    return status == LS_OK ? check_header(f) : status;
}

static int load_set(const file *f, const ls_tensor_set *set)
{
    int status = LS_OK;
    for (int i = 0; i < set->entries && status == LS_OK; i++)
        status = load_tensor(f, set, &set->entry[i]);
    return status;
}

/* Returns whether `name`, a tensor's name in the file, is that of a tensor of the set. */
static bool belongs(const char *name, const ls_tensor_set *set)
{
    const size_t length = strlen(set->prefix);
    if (strncmp(name, set->prefix, length) != 0)
        return false;
    for (int i = 0; i < set->entries; i++)
        if (strcmp(name + length, set->entry[i].name) == 0)
            return true;
    return false;
}

static int check_no_others(const file *f, const ls_tensor_set *sets, int count)
{
    for (const cJSON *e = ls_json_root(f->header)->child; e; e = e->next) {
        bool known = is_metadata(e);
        for (int g = 0; g < count && !known; g++)
            known = belongs(e->string, &sets[g]);
        if (!known)
            return fail_entry(f, e,
                              "the model has none of that name; is it the file of another "
                              "model?");
    }
    return LS_OK;
}

/* ---- verification of the checksum ------------------------------------------------------------ */

static const cJSON *metadata(const file *f, const char *key)
{
    const cJSON *all = cJSON_GetObjectItemCaseSensitive(ls_json_root(f->header), "__metadata__");
    return cJSON_GetObjectItemCaseSensitive(all, key);
}

/* Computes the SHA-256 of the file as it is with zeros in place of the hash's own digits. */
static int hash_file(char out[LS_SHA256_HEX], const file *f)
{
    static const char zeros[] = LS_WHOLE_ZEROS;
    const uint64_t behind = LS_WHOLE_AT + sizeof zeros - 1;
    uint8_t bytes[4 * CHUNK];
    ls_sha256 hash;
    ls_sha256_init(&hash);
    int status = read_at(f, bytes, LS_WHOLE_AT, 0);
    if (status == LS_OK) {
        ls_sha256_update(&hash, bytes, LS_WHOLE_AT);
        ls_sha256_update(&hash, zeros, sizeof zeros - 1);
    }
    for (uint64_t at = behind; at < f->size && status == LS_OK;) {
        const uint64_t rest = f->size - at;
        const size_t n = rest < sizeof bytes ? (size_t)rest : sizeof bytes;
        status = read_at(f, bytes, n, at);
        if (status == LS_OK)
            ls_sha256_update(&hash, bytes, n);
        at += n;
    }
    ls_sha256_final_hex(&hash, out);
    return status;
}

/* Fails because the file is not the one that its checksum describes. A file of weights without a
 * state can have been changed on purpose, by a program that has kept its metadata. */
static int fail_checksum(const file *f, int at, const char *what)
{
    const bool has_state = metadata(f, "lockstep");
    return ls_fail(f->err, LS_EDATA, "%s: offset %d: expected %s; the file is damaged%s", f->path,
                   at, what,
                   has_state ? ""
                             : ": use another copy of it (if a program has changed it on purpose, "
                               "leave \"sha256\" out of its metadata)");
}

static int verify(const file *f, const char *digits)
{
    static const char start[] = LS_WHOLE_START;
    char found[sizeof start], hash[LS_SHA256_HEX], what[200];
    int status = read_at(f, found, sizeof start - 1, PREFACE);
    if (status != LS_OK)
        return status;
    if (memcmp(found, start, sizeof start - 1) != 0 || strlen(digits) != LS_SHA256_HEX - 1)
        return fail_checksum(f, PREFACE, "the file's SHA-256 before all else");
    status = hash_file(hash, f);
    if (status || strcmp(hash, digits) == 0)
        return status;
    snprintf(what, sizeof what, "the SHA-256 %.64s of the whole file, found %s", digits, hash);
    return fail_checksum(f, LS_WHOLE_AT, what);
}

static int check_whole(const file *f)
{
    const cJSON *digits = metadata(f, "sha256");
    const cJSON *text = metadata(f, "lockstep");
    if (!digits && !text)
        return LS_OK;
    if (!cJSON_IsString(digits) || (text && !cJSON_IsString(text)))
        return ls_fail(f->err, LS_EDATA,
                       "%s: offset 8: expected \"sha256\" and \"lockstep\" in its metadata, two "
                       "strings; the file is damaged",
                       f->path);
    return verify(f, digits->valuestring);
}

/* ---- opening and closing --------------------------------------------------------------------- */

int ls_tensor_file_open(ls_tensor_file **out, const char *path, const ls_host *host, ls_error *err)
{
    file *f = ls_alloc(host, sizeof *f);
    *out = NULL;
    if (!f)
        return ls_fail(err, LS_ENOMEM, "%.300s: no memory to open it", path);
    *f = (file){.path = ls_strdup(host, path), .fd = -1, .host = host, .err = err};
    int status =
        f->path ? open_checked(f) : ls_fail(err, LS_ENOMEM, "%.300s: no memory for its path", path);
    if (status == LS_OK)
        status = check_whole(f);
    f->err = NULL;
    if (status == LS_OK)
        *out = f;
    else
        ls_tensor_file_close(f);
    return status;
}

void ls_tensor_file_close(ls_tensor_file *f)
{
    if (!f)
        return;
    ls_json_destroy(f->header);
    if (f->fd >= 0)
        close(f->fd);
    ls_free(f->host, f->path);
    ls_free(f->host, f);
}

const char *ls_tensor_file_path(const ls_tensor_file *f)
{
    return f->path;
}

/* Returns a copy of an opened file with another place for errors. */
static file with_error(const file *opened, ls_error *err)
{
    file f = *opened;
    f.err = err;
    return f;
}

/* ---- texts and all tensors ------------------------------------------------------------------- */

const char *ls_tensor_file_state(const ls_tensor_file *f)
{
    return cJSON_GetStringValue(metadata(f, "lockstep"));
}

const char *ls_tensor_file_card(const ls_tensor_file *f)
{
    return cJSON_GetStringValue(metadata(f, "lockstep_model"));
}

const char *ls_tensor_file_steps(const ls_tensor_file *f)
{
    return cJSON_GetStringValue(metadata(f, "lockstep_steps"));
}

int ls_safetensors_state(char **state, const char *path, const ls_host *host, ls_error *err)
{
    ls_tensor_file *f;
    *state = NULL;
    int status = ls_tensor_file_open(&f, path, host, err);
    const char *text = status == LS_OK ? ls_tensor_file_state(f) : NULL;
    if (text && !(*state = ls_strdup(host, text)))
        status = ls_fail(err, LS_ENOMEM, "%s: no memory for its header", path);
    ls_tensor_file_close(f);
    return status;
}

int ls_tensor_file_load_sets(const ls_tensor_set *sets, int count, const ls_tensor_file *opened,
                             ls_error *err)
{
    file f = with_error(opened, err);
    f.strict = true;
    int status = check_no_others(&f, sets, count);
    for (int g = 0; g < count && status == LS_OK; g++)
        status = load_set(&f, &sets[g]);
    return status;
}

/* ---- prefixes of names ----------------------------------------------------------------------- */

/* Finds the shortest prefix of `name` that ends with a dot and after which a tensor's name of the
 * set follows. Returns false if there is none, or if the prefix has TENSOR_NAME bytes or more. */
static bool find_prefix(char out[TENSOR_NAME], const char *name, const ls_tensor_set *set)
{
    const size_t length = strlen(name);
    size_t least = length;
    for (int i = 0; i < set->entries; i++) {
        const size_t n = strlen(set->entry[i].name);
        if (n < length && name[length - n - 1] == '.' &&
            strcmp(name + length - n, set->entry[i].name) == 0 && length - n < least)
            least = length - n;
    }
    if (least == length || least >= TENSOR_NAME)
        return false;
    memcpy(out, name, least);
    out[least] = '\0';
    return true;
}

static bool all_begin_with(const cJSON *tensors, const char *prefix)
{
    const size_t n = strlen(prefix);
    for (const cJSON *e = tensors; e; e = e->next)
        if (!is_metadata(e) && strncmp(e->string, prefix, n) != 0)
            return false;
    return true;
}

/* Some programs put a prefix such as "module." or "_orig_mod." before the names of a model that
 * they wrap. If all names of the file begin with the same prefix, and no name of the set occurs
 * in the file without a prefix, the function sets that prefix in the set. */
static void take_prefix_off(const file *f, ls_tensor_set *set, char prefix[TENSOR_NAME])
{
    const cJSON *tensors = ls_json_root(f->header)->child;
    bool found = false;
    if (set->prefix[0])
        return;
    for (const cJSON *e = tensors; e; e = e->next)
        if (!is_metadata(e) && belongs(e->string, set))
            return;
    for (const cJSON *e = tensors; e && !found; e = e->next)
        found = !is_metadata(e) && find_prefix(prefix, e->string, set);
    if (!found || !all_begin_with(tensors, prefix))
        return;
    set->prefix = prefix;
    ls_log(f->host, LS_LOG_INFO, "%.200s: all names begin with \"%.80s\", which is taken off",
           f->path, prefix);
}

int ls_tensor_file_load(const ls_tensor_set *set, const ls_tensor_file *opened, ls_error *err)
{
    const file f = with_error(opened, err);
    char prefix[TENSOR_NAME];
    ls_tensor_set named = *set;
    take_prefix_off(&f, &named, prefix);
    return load_set(&f, &named);
}

/* ---- tensors that fit ------------------------------------------------------------------------ */

static void say(const file *f, const char *name, const char *what)
{
    ls_log(f->host, LS_LOG_INFO, "%.200s: tensor \"%.80s\" %s", f->path, name, what);
}

static int load_fitting(const file *f, const ls_tensor_set *set, int *taken)
{
    const cJSON *root = ls_json_root(f->header);
    int status = LS_OK;
    for (int i = 0; i < set->entries && status == LS_OK; i++) {
        const ls_tensor_entry *p = &set->entry[i];
        char name[TENSOR_NAME];
        snprintf(name, sizeof name, "%s%s", set->prefix, p->name);
        const cJSON *entry = cJSON_GetObjectItemCaseSensitive(root, name);
        if (!entry)
            say(f, p->name, "is not there: it begins as without the file");
        else if (!same_shape(cJSON_GetObjectItemCaseSensitive(entry, "shape"), p))
            say(f, p->name, "has another shape: it begins as without the file");
        else if ((status = load_tensor(f, set, p)) == LS_OK)
            ++*taken;
    }
    return status;
}

int ls_tensor_file_load_fitting(const ls_tensor_set *set, const ls_tensor_file *opened,
                                ls_error *err)
{
    const file f = with_error(opened, err);
    char prefix[TENSOR_NAME];
    ls_tensor_set named = *set;
    int taken = 0;
    take_prefix_off(&f, &named, prefix);
    int status = load_fitting(&f, &named, &taken);
    if (status == LS_OK && taken == 0)
        status = ls_fail(err, LS_EDATA,
                         "%s: offset 8: no tensor has a name and a shape of the model's; is it the "
                         "file of another model?",
                         f.path);
    const cJSON *e = status == LS_OK ? ls_json_root(f.header)->child : NULL;
    for (; e; e = e->next)
        if (!is_metadata(e) && !belongs(e->string, &named))
            say(&f, e->string, "is not used: the model has none of that name");
    return status;
}
