/* SPDX-License-Identifier: MIT */
/* Places a case's rows with the caller or in files of arrays, and draws keys that belong to other
 * kinds of data. */
#include "campaigns/swarm.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Writes a .npy file of `count` values of `size` bytes each, with shape and type as Python writes
 * them. */
static void write_npy(const char *directory, const char *name, const char *type, const char *shape,
                      const void *values, size_t size, size_t count)
{
    char path[600], header[128];
    snprintf(path, sizeof path, "%s/%s", directory, name);
    int n = snprintf(header, sizeof header,
                     "{'descr': '%s', 'fortran_order': False, 'shape': (%s), }", type, shape);
    memset(header + n, ' ', sizeof header - (size_t)n);
    header[117] = '\n'; /* 10 bytes stand before it: together a multiple of 64 */
    FILE *file = fopen(path, "wb");
    if (!file)
        return; /* the case then fails, and says so */
    fwrite("\x93NUMPY\x01\x00\x76\x00", 1, 10, file);
    fwrite(header, 1, 118, file);
    fwrite(values, size, count, file);
    fclose(file);
}

typedef struct split {
    uint32_t count;
    size_t values; /* number of values in all rows */
    uint8_t *bytes;
    int32_t *labels;
} split;

static int read_split(split *s, const swarm_case *c, int test)
{
    const ls_data_source *from = &c->data;
    *s = (split){.count = test ? from->test_rows : from->train_rows};
    s->values =
        (size_t)s->count * (size_t)from->channels * (size_t)from->height * (size_t)from->width;
    uint32_t *rows = calloc(s->count, sizeof *rows);
    s->bytes = calloc(s->values, 1);
    s->labels = calloc(s->count, sizeof *s->labels);
    for (uint32_t i = 0; rows && i < s->count; i++)
        rows[i] = i;
    const int good = rows && s->bytes && s->labels &&
                     from->read(from->user, test, rows, s->count, s->bytes, s->labels, NULL) == 0;
    free(rows);
    return good;
}

static void free_split(split *s)
{
    free(s->bytes);
    free(s->labels);
}

/* ---- npy ------------------------------------------------------------------------------------- */

/* Classes, or a bit for each of them. */
static void write_targets(const swarm_case *c, const split *s, const char *name)
{
    const size_t classes = (size_t)c->data.classes;
    char shape[64];
    if (!c->vectors) {
        snprintf(shape, sizeof shape, "%u,", (unsigned)s->count);
        write_npy(c->directory, name, "<i4", shape, s->labels, sizeof *s->labels, s->count);
        return;
    }
    float *bits = calloc(s->count * classes, sizeof *bits);
    for (uint32_t i = 0; bits && i < s->count; i++)
        bits[i * classes + (size_t)s->labels[i]] = 1;
    snprintf(shape, sizeof shape, "%u, %d", (unsigned)s->count, c->data.classes);
    if (bits)
        write_npy(c->directory, name, "<f4", shape, bits, sizeof *bits, s->count * classes);
    free(bits);
}

/* Rows of [channels][height][width] as rows of [height][width][channels]. */
static void put_channels_last(const swarm_case *c, split *s)
{
    const size_t channels = (size_t)c->data.channels,
                 places = (size_t)c->data.height * (size_t)c->data.width;
    uint8_t *turned = calloc(s->values, 1);
    for (size_t i = 0; turned && i < s->values; i++) {
        const size_t row = i / (channels * places), channel = i / places % channels;
        turned[(row * places + i % places) * channels + channel] = s->bytes[i];
    }
    free(s->bytes);
    s->bytes = turned;
}

/* Both arrays of one split; the rows as bytes, or as floats with the same values. */
static void write_split(const swarm_case *c, int test, int floats, int last)
{
    split s;
    char shape[64];
    const int read = read_split(&s, c, test), channels = c->data.channels;
    const int sides[] = {c->data.height, c->data.width};
    float *wide = calloc(s.values, sizeof *wide);
    if (read && last)
        put_channels_last(c, &s);
    if (read && wide && s.bytes) {
        for (size_t i = 0; i < s.values; i++)
            wide[i] = (float)s.bytes[i] / 255;
        snprintf(shape, sizeof shape, "%u, %d, %d, %d", (unsigned)s.count,
                 last ? sides[0] : channels, last ? sides[1] : sides[0],
                 last ? channels : sides[1]);
        write_npy(c->directory, test ? "test_x.npy" : "x.npy", floats ? "<f4" : "|u1", shape,
                  floats ? (const void *)wide : s.bytes, floats ? sizeof *wide : 1, s.values);
        write_targets(c, &s, test ? "test_y.npy" : "y.npy");
    }
    free(wide);
    free_split(&s);
}

static void add_arrays(swarm_case *c, draws *d, cJSON *data)
{
    static const char *const forms[] = {"auto", "classes", NULL};
    static const char *const holes[] = {"refuse", "zero", "mean", NULL};
    static const char *const layouts[] = {"channels_first", "channels_last"};
    const int floats = (int)draw(d, 2), last = (int)draw(d, 2);
    c->vectors = one_in(d, 3);
    write_split(c, 0, floats, last);
    write_split(c, 1, floats, last);
    cJSON_AddStringToObject(data, "name", "npy");
    cJSON_AddStringToObject(data, "path", c->directory);
    cJSON_AddStringToObject(data, "x", "x.npy");
    cJSON_AddStringToObject(data, "y", "y.npy");
    cJSON_AddStringToObject(data, "test_x", "test_x.npy");
    cJSON_AddStringToObject(data, "test_y", "test_y.npy");
    if (!c->vectors)
        cJSON_AddNumberToObject(data, "classes", c->data.classes);
    if (last || one_in(d, 2))
        cJSON_AddStringToObject(data, "layout", layouts[last]);
    cJSON_AddStringToObject(data, "labels", c->vectors ? "values" : draw_word(d, forms));
    cJSON_AddStringToObject(data, "missing", draw_word(d, holes));
}

/* ---- csv ------------------------------------------------------------------------------------- */

/* Writes a column for each value and one that is dropped; test rows have only classes that training
 * rows have. `fraction` follows each value. */
static void write_table(const swarm_case *c, int test, const char *path, char separator,
                        const char *fraction)
{
    split s;
    const int read = read_split(&s, c, test), columns = c->data.channels;
    FILE *file = read ? fopen(path, "w") : NULL;
    for (int i = 0; file && i < columns; i++)
        fprintf(file, "v%d%c", i, separator);
    if (file)
        fprintf(file, "id%ckind\n", separator);
    for (uint32_t r = 0; file && r < s.count + (uint32_t)(test ? 0 : c->data.classes); r++) {
        const uint32_t from = r % s.count;
        for (int i = 0; i < columns; i++)
            fprintf(file, "%d%s%c", (int)s.bytes[from * (uint32_t)columns + (uint32_t)i] - 128,
                    fraction, separator);
        fprintf(file, "%u%c%d\n", (unsigned)r, separator,
                r < s.count ? s.labels[r] : (int)(r - s.count));
    }
    if (file)
        fclose(file);
    free_split(&s);
}

static void add_table(swarm_case *c, draws *d, cJSON *data)
{
    static const char *const forms[] = {"auto", "classes", NULL};
    static const char *const unknown[] = {"empty", "zeros", "error", NULL};
    const int comma = (int)draw(d, 2);
    const char separator[] = {";\t"[draw(d, 2)], '\0'};
    char path[2][600];
    for (int test = 0; test < 2; test++) {
        snprintf(path[test], sizeof path[test], "%s/%d.csv", c->directory, test);
        write_table(c, test, path[test], comma ? separator[0] : ',', comma ? ",0" : "");
    }
    cJSON_AddStringToObject(data, "name", "csv");
    cJSON_AddStringToObject(data, "path", path[0]);
    cJSON_AddStringToObject(data, "test_path", path[1]);
    cJSON_AddStringToObject(data, "target", "kind");
    cJSON_AddStringToObject(data, "categorical", "kind");
    if (one_in(d, 3))
        cJSON_AddStringToObject(data, "weight", "id");
    else if (one_in(d, 2))
        cJSON_AddStringToObject(data, "drop", "id");
    else
        cJSON_AddItemToArray(cJSON_AddArrayToObject(data, "drop"), cJSON_CreateString("id"));
    if (one_in(d, 2))
        cJSON_AddStringToObject(data, "separator", comma ? separator : ",");
    if (one_in(d, 2))
        cJSON_AddStringToObject(data, "decimal", comma ? "," : ".");
    cJSON_AddStringToObject(data, "encoding", one_in(d, 2) ? "utf-8" : "latin-1");
    cJSON_AddStringToObject(data, "labels", draw_word(d, forms));
    cJSON_AddStringToObject(data, "unknown", draw_word(d, unknown));
    cJSON_AddBoolToObject(data, "standardize", (int)draw(d, 2));
    cJSON_AddNumberToObject(data, "clip", one_in(d, 2) ? 1 : 0);
    cJSON_AddBoolToObject(data, "standardize_target", 1);
    c->data.train_rows += (uint32_t)c->data.classes;
}

/* ---- a folder's images, packed --------------------------------------------------------------- */

static void add_sides(cJSON *data, const char *key, int height, int width)
{
    cJSON *pair = cJSON_AddArrayToObject(data, key);
    cJSON_AddItemToArray(pair, cJSON_CreateNumber(height));
    cJSON_AddItemToArray(pair, cJSON_CreateNumber(width));
}

/* How the pictures were fitted to the rows, which are packed already. */
static void add_size(const swarm_case *c, draws *d, cJSON *data)
{
    static const char *const filters[] = {"bilinear", "bicubic", NULL};
    const int h = c->data.height, w = c->data.width, channels = c->data.channels == 1 ? 1 : 3;
    switch (draw(d, channels == 3 ? 4 : 3)) {
    case 0: cJSON_AddNumberToObject(data, "image_size", h); break;
    case 1:
        add_sides(data, "resize", h + (int)draw(d, 9), w + (int)draw(d, 9));
        add_sides(data, "crop", h, w);
        break;
    case 2:
        cJSON_AddNumberToObject(data, "resize", (h > w ? h : w) + (int)draw(d, 9));
        if (h == w)
            cJSON_AddNumberToObject(data, "crop", h);
        else
            add_sides(data, "crop", h, w);
        cJSON_AddStringToObject(data, "interpolation", draw_word(d, filters));
        break;
    default: cJSON_AddStringToObject(data, "pictures", "imagenet"); break;
    }
    cJSON_AddNumberToObject(data, "channels", channels);
}

static void add_folder(swarm_case *c, draws *d, cJSON *data)
{
    const ls_data_source *from = &c->data;
    char path[600], header[600];
    split s;
    snprintf(path, sizeof path, "%s/packed.safetensors", c->directory);
    const int read = read_split(&s, c, 0);
    const size_t labels = s.count * sizeof *s.labels;
    /* The test rows are the training rows once more. */
    int n = 0;
    for (int test = 0; test < 2; test++)
        n += snprintf(
            header + n, sizeof header - (size_t)n,
            "%s\"%sx\":{\"dtype\":\"U8\",\"shape\":[%u,%d,%d,%d],\"data_offsets\":[0,%zu]},"
            "\"%sy\":{\"dtype\":\"I32\",\"shape\":[%u],\"data_offsets\":[%zu,%zu]}%s",
            test ? "," : "{", test ? "test_" : "", (unsigned)s.count, from->channels, from->height,
            from->width, s.values, test ? "test_" : "", (unsigned)s.count, s.values,
            s.values + labels, test ? "}" : "");
    const uint64_t length = (uint64_t)n;
    FILE *file = read ? fopen(path, "wb") : NULL;
    if (file) {
        fwrite(&length, sizeof length, 1, file);
        fwrite(header, 1, length, file);
        fwrite(s.bytes, 1, s.values, file);
        fwrite(s.labels, 1, labels, file);
        fclose(file);
    }
    free_split(&s);
    cJSON_AddStringToObject(data, "name", "folder");
    cJSON_AddStringToObject(data, "path", c->directory);
    cJSON_AddStringToObject(data, "packed", path);
    add_size(c, d, data);
    cJSON_AddNumberToObject(data, "classes", from->classes);
    if (one_in(d, 2)) /* packed data has no broken images: the key changes nothing */
        cJSON_AddBoolToObject(data, "skip_broken", 1);
}

/* ---- the place of the rows ------------------------------------------------------------------- */

/* Keys of other kinds, which are let pass with their defaults. */
static void add_defaults(draws *d, cJSON *data)
{
    if (one_in(d, 2))
        cJSON_AddStringToObject(data, "labels", "auto");
    if (one_in(d, 2))
        cJSON_AddStringToObject(data, "missing", "refuse");
    if (one_in(d, 2))
        cJSON_AddStringToObject(data, "unknown", "empty");
    if (one_in(d, 2))
        cJSON_AddBoolToObject(data, "standardize", 0);
    if (one_in(d, 2))
        cJSON_AddStringToObject(data, "decimal", "auto");
    if (one_in(d, 2))
        cJSON_AddStringToObject(data, "encoding", "utf-8");
    if (one_in(d, 2))
        cJSON_AddNumberToObject(data, "image_size", 32);
    if (one_in(d, 2))
        cJSON_AddNumberToObject(data, "channels", 3);
}

void swarm_place(swarm_case *c, draws *d, cJSON *data)
{
    const int filed = !c->data.streamed && one_in(d, 6) ? draw_from(d, 1, 4) : 0;
    if (!c->data.streamed && c->data.height == 1 && c->data.width == 1 && draw(d, 2)) {
        add_table(c, d, data);
    } else if (filed > 1) {
        add_arrays(c, d, data);
    } else if (filed) {
        add_folder(c, d, data);
    } else {
        cJSON_AddStringToObject(data, "name", c->data_name);
        if (one_in(d, 12))
            add_defaults(d, data);
    }
    if (one_in(d, 4) && !c->data.streamed && c->data.train_rows >= 30)
        cJSON_AddNumberToObject(data, "validation", draw_between(d, 0.3, 0.7));
    /* the rows of a table that a limit leaves out may have the only row of a class */
    else if (one_in(d, 4) && !c->data.streamed && !cJSON_HasObjectItem(data, "categorical"))
        cJSON_AddNumberToObject(data, "limit", draw_from(d, 1, (int)c->data.train_rows));
    const cJSON *held = cJSON_GetObjectItem(data, "validation");
    if (held && held->valuedouble <= 0.5 && one_in(d, 3)) /* there are at least two folds */
        cJSON_AddNumberToObject(data, "fold", 1);
}
