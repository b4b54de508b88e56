#include "data/resident.h"

#include "base/error.h"
#include "base/host.h"

#include <string.h>

static int resident_read(const ls_dataset *ds, const uint32_t *rows, uint32_t count,
                         uint8_t *images, uint8_t *labels, ls_error *err)
{
    const ls_resident *r = (const ls_resident *)ds;
    size_t bytes = ls_dataset_image_bytes(ds);
    for (uint32_t i = 0; i < count; i++)
        if (rows[i] >= ds->info.rows)
            return ls_fail(err, LS_EINVAL, "%s: row %u does not exist; the %s split has %u rows",
                           ds->info.name, rows[i], ds->info.split, ds->info.rows);
    for (uint32_t i = 0; i < count; i++) {
        memcpy(images + i * bytes, r->images + rows[i] * bytes, bytes);
        labels[i] = r->labels[rows[i]];
    }
    return LS_OK;
}

static ls_dataset_view resident_view(const ls_dataset *ds)
{
    const ls_resident *r = (const ls_resident *)ds;
    return (ls_dataset_view){.images = r->images, .labels = r->labels};
}

static void resident_close(ls_dataset *ds)
{
    ls_resident *r = (ls_resident *)ds;
    const ls_host *host = r->host;
    ls_free(host, r->images);
    ls_free(host, r->labels);
    ls_free(host, r->source);
    ls_free(host, r);
}

static const ls_dataset_ops resident_ops = {
    .size = sizeof(ls_dataset_ops),
    .read = resident_read,
    .view = resident_view,
    .close = resident_close,
};

int ls_resident_create(ls_resident **out, const ls_dataset_info *info, const ls_host *host,
                       ls_error *err)
{
    *out = NULL;
    ls_resident *r = ls_alloc(host, sizeof *r);
    if (!r)
        return ls_fail(err, LS_ENOMEM, "%s: out of memory", info->name);
    r->base = (ls_dataset){.ops = &resident_ops, .info = *info};
    r->host = host;
    r->source = ls_strdup(host, info->source);
    r->images = ls_alloc_array(host, info->rows, ls_dataset_image_bytes(&r->base));
    r->labels = ls_alloc(host, info->rows);
    r->base.info.source = r->source;
    if (!r->source || !r->images || !r->labels) {
        resident_close(&r->base);
        return ls_fail(err, LS_ENOMEM, "%s: out of memory for %u images of %d x %d x %d bytes",
                       info->name, info->rows, info->channels, info->height, info->width);
    }
    *out = r;
    return LS_OK;
}
