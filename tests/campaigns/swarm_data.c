/* Where a case's rows lie: with the caller, or in files of arrays; and the keys of data that only other kinds of
 * datasets heed. */
#include "campaigns/swarm.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* A .npy file of `count` values of `size` bytes each; the shape and the type as Python writes them. */
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

/* Both arrays of one split; the rows as bytes, or as floats with the same values. */
static void write_split(const swarm_case *c, int test, int floats)
{
    const ls_data_source *s = &c->data;
    const uint32_t count = test ? s->test_rows : s->train_rows;
    const size_t values =
        (size_t)count * (size_t)s->channels * (size_t)s->height * (size_t)s->width;
    uint32_t *rows = calloc(count, sizeof *rows);
    uint8_t *bytes = calloc(values, 1);
    float *wide = calloc(values, sizeof *wide);
    int32_t *labels = calloc(count, sizeof *labels);
    char shape[64];
    for (uint32_t i = 0; rows && i < count; i++)
        rows[i] = i;
    if (rows && bytes && wide && labels &&
        s->read(s->user, test, rows, count, bytes, labels, NULL) == 0) {
        for (size_t i = 0; i < values; i++)
            wide[i] = (float)bytes[i] / 255;
        snprintf(shape, sizeof shape, "%u, %d, %d, %d", (unsigned)count, s->channels, s->height,
                 s->width);
        write_npy(c->directory, test ? "test_x.npy" : "x.npy", floats ? "<f4" : "|u1", shape,
                  floats ? (const void *)wide : bytes, floats ? sizeof *wide : 1, values);
        snprintf(shape, sizeof shape, "%u,", (unsigned)count);
        write_npy(c->directory, test ? "test_y.npy" : "y.npy", "<i4", shape, labels, sizeof *labels,
                  count);
    }
    free(labels);
    free(wide);
    free(bytes);
    free(rows);
}

static void add_arrays(swarm_case *c, draws *d, cJSON *data)
{
    static const char *const forms[] = {"auto", "classes", NULL};
    const int floats = (int)draw(d, 2);
    write_split(c, 0, floats);
    write_split(c, 1, floats);
    cJSON_AddStringToObject(data, "name", "npy");
    cJSON_AddStringToObject(data, "path", c->directory);
    cJSON_AddStringToObject(data, "x", "x.npy");
    cJSON_AddStringToObject(data, "y", "y.npy");
    cJSON_AddStringToObject(data, "test_x", "test_x.npy");
    cJSON_AddStringToObject(data, "test_y", "test_y.npy");
    cJSON_AddNumberToObject(data, "classes", c->data.classes);
    cJSON_AddStringToObject(data, "labels", draw_word(d, forms));
}

static void add_unheeded(const swarm_case *c, draws *d, cJSON *data)
{
    static const char *const forms[] = {"auto", "classes", "values", NULL};
    static const char *const holes[] = {"refuse", "zero", "mean", NULL};
    static const char *const texts[] = {"target", "categorical", "drop",
                                        "packed", "test_path",   NULL};
    if (one_in(d, 2)) /* where to look for files */
        cJSON_AddStringToObject(data, "path", c->directory);
    cJSON_AddStringToObject(data, draw_word(d, texts), "quality");
    cJSON_AddStringToObject(data, "labels", draw_word(d, forms));
    cJSON_AddStringToObject(data, "on_nan", draw_word(d, holes));
    cJSON_AddBoolToObject(data, "standardize", (int)draw(d, 2));
    cJSON_AddNumberToObject(data, "size", draw_from(d, 1, 64));
    cJSON_AddNumberToObject(data, "channels", draw_from(d, 1, 3));
}

void swarm_place(swarm_case *c, draws *d, cJSON *data)
{
    if (one_in(d, 8) && !c->data.streamed) {
        add_arrays(c, d, data);
    } else {
        cJSON_AddStringToObject(data, "name", c->data_name);
        if (one_in(d, 12))
            add_unheeded(c, d, data);
    }
    if (one_in(d, 4) && !c->data.streamed && c->data.train_rows >= 30)
        cJSON_AddNumberToObject(data, "validation", draw_between(d, 0.3, 0.7));
    else if (one_in(d, 4) && !c->data.streamed)
        cJSON_AddNumberToObject(data, "limit", draw_from(d, 1, (int)c->data.train_rows));
}
