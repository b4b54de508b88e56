#include "data/source.h"

#include "base/error.h"
#include "base/host.h"
#include "data/resident.h"

#include <string.h>

#define CHUNK 256u /* rows that are asked for at once */

/* ---- what the callback hands over ----------------------------------------------------------- */

/* A callback that forgot its message still gets one. */
static int ask(const ls_data_source *source, int test, const uint32_t *rows, uint32_t count,
               uint8_t *images, uint8_t *labels, ls_error *err)
{
    ls_error why = {0};
    int status = source->read(source->user, test, rows, count, images, labels, &why);
    if (status < 0)
        return ls_fail(err, status, "%.64s: reading rows %u … failed: %.380s", source->name,
                       (unsigned)rows[0], why.text[0] ? why.text : ls_status_name(status));
    for (uint32_t i = 0; i < count; i++)
        if (labels[i] >= source->classes)
            return ls_fail(err, LS_EDATA,
                           "%.64s: row %u of the %s rows has label %d; the labels of %d classes "
                           "are 0 … %d",
                           source->name, (unsigned)rows[i], test ? "test" : "training", labels[i],
                           source->classes, source->classes - 1);
    return LS_OK;
}

/* ---- streamed ------------------------------------------------------------------------------- */

typedef struct streamed {
    ls_dataset base;
    const ls_data_source *source;
    const ls_host *host;
} streamed;

static int streamed_read(const ls_dataset *ds, const uint32_t *rows, uint32_t count,
                         uint8_t *images, uint8_t *labels, ls_error *err)
{
    const streamed *s = (const streamed *)ds;
    for (uint32_t i = 0; i < count; i++)
        if (rows[i] >= ds->info.rows)
            return ls_fail(err, LS_EINVAL, "%s: row %u does not exist; there are %u training rows",
                           ds->info.name, (unsigned)rows[i], (unsigned)ds->info.rows);
    return count > 0 ? ask(s->source, 0, rows, count, images, labels, err) : LS_OK;
}

static void streamed_close(ls_dataset *ds)
{
    streamed *s = (streamed *)ds;
    ls_free(s->host, s);
}

static const ls_dataset_ops streamed_ops = {
    .size = sizeof(ls_dataset_ops), .read = streamed_read, .close = streamed_close};

static int open_streamed(ls_dataset **out, const ls_dataset_info *info,
                         const ls_data_source *source, const ls_host *host, ls_error *err)
{
    streamed *s = ls_alloc(host, sizeof *s);
    if (!s)
        return ls_fail(err, LS_ENOMEM, "%.64s: out of memory", source->name);
    s->base = (ls_dataset){.ops = &streamed_ops, .info = *info};
    s->source = source;
    s->host = host;
    *out = &s->base;
    return LS_OK;
}

/* ---- resident ------------------------------------------------------------------------------- */

static int fill(ls_resident *r, const ls_data_source *source, int test, ls_error *err)
{
    const size_t bytes = ls_dataset_image_bytes(&r->base);
    uint32_t rows[CHUNK];
    int status = LS_OK;
    for (uint32_t done = 0; status == LS_OK && done < r->base.info.rows;) {
        const uint32_t left = r->base.info.rows - done, count = left < CHUNK ? left : CHUNK;
        for (uint32_t i = 0; i < count; i++)
            rows[i] = done + i;
        status = ask(source, test, rows, count, r->images + done * bytes, r->labels + done, err);
        done += count;
    }
    return status;
}

static int open_resident(ls_dataset **out, const ls_dataset_info *info,
                         const ls_data_source *source, int test, const ls_host *host, ls_error *err)
{
    ls_resident *r;
    int status = ls_resident_create(&r, info, host, err);
    if (status)
        return status;
    status = fill(r, source, test, err);
    if (status)
        ls_dataset_close(&r->base);
    else
        *out = &r->base;
    return status;
}

/* ---- opening -------------------------------------------------------------------------------- */

static int check(const ls_data_source *s, const ls_dataset_spec *spec, ls_error *err)
{
    const int most = 1 << 14; /* of a side: then no product of sizes overflows */
    if (s->channels < 1 || s->height < 1 || s->width < 1 || s->channels > most ||
        s->height > most || s->width > most || s->classes < 2 || s->classes > 256)
        return ls_fail(err, LS_EINVAL,
                       "%.64s: images of %d×%d×%d and %d classes; sides must be 1 … %d, classes "
                       "2 … 256",
                       s->name, s->channels, s->height, s->width, s->classes, most);
    if (s->train_rows == 0 && !s->streamed)
        return ls_fail(err, LS_EINVAL,
                       "%.64s: train_rows is 0; set it, or `streamed` to train by "
                       "ls_trainer_step alone",
                       s->name);
    if (!s->read && (s->train_rows > 0 || s->test_rows > 0))
        return ls_fail(err, LS_EINVAL, "%.64s: it has rows, but no `read` callback", s->name);
    return ls_dataset_check_limit(spec, s->train_rows, s->name, err);
}

int ls_source_open(ls_dataset **train, ls_dataset **test, const ls_data_source *source,
                   const ls_dataset_spec *spec, const ls_host *host, ls_error *err)
{
    ls_dataset_info info = {
        .name = source->name,
        .split = "train",
        .source = "the caller's callback",
        .channels = source->channels,
        .height = source->height,
        .width = source->width,
        .classes = source->classes,
        .rows = spec->limit > 0 ? spec->limit : source->train_rows,
    };
    *train = *test = NULL;
    int status = check(source, spec, err);
    if (status == LS_OK)
        status = source->streamed ? open_streamed(train, &info, source, host, err)
                                  : open_resident(train, &info, source, 0, host, err);
    info.split = "test";
    info.rows = source->test_rows;
    if (status == LS_OK)
        status = open_resident(test, &info, source, 1, host, err);
    if (status) {
        ls_dataset_close(*train);
        *train = NULL;
    }
    return status;
}
