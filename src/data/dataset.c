#include "data/dataset.h"

#include "base/error.h"
#include "data/kinds.h"
#include "data/source.h"

#include <assert.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#define LS_DATASET(name) &ls_dataset_##name,
static const ls_dataset_kind *const kinds[] = {
#include "data/kinds.def"
};
#undef LS_DATASET

enum { KINDS = sizeof kinds / sizeof *kinds };

const ls_dataset_about *ls_dataset_at(size_t i)
{
    return i < KINDS ? &kinds[i]->about : NULL;
}

const ls_dataset_about *ls_dataset_named(const char *name)
{
    for (size_t i = 0; i < KINDS; i++)
        if (strcmp(kinds[i]->about.name, name) == 0)
            return &kinds[i]->about;
    return NULL;
}

int ls_dataset_refuse(const ls_dataset_spec *spec, const char *key, ls_error *err,
                      const char *format, ...)
{
    char text[LS_ERROR_TEXT];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(text, sizeof text, format, arguments);
    va_end(arguments);
    if (spec->wrong)
        *spec->wrong = key;
    return ls_fail(err, LS_ECONFIG, "%s: %s", key, text);
}

int ls_dataset_check_limit(const ls_dataset_spec *spec, uint32_t rows, const char *from,
                           ls_error *err)
{
    if (spec->limit <= rows)
        return LS_OK;
    return ls_dataset_refuse(spec, "data.limit", err,
                             "expected at most the %u training rows of %s, found %u; 0 means all",
                             (unsigned)rows, from, (unsigned)spec->limit);
}

static int fail_unknown(const ls_dataset_spec *spec, ls_error *err)
{
    const char *names[KINDS];
    char list[256] = "";
    size_t used = 0;
    for (size_t i = 0; i < KINDS; i++) {
        const char *before = i == 0 ? "" : i + 1 < KINDS ? ", " : " or ";
        names[i] = kinds[i]->about.name;
        if (used < sizeof list)
            used += (size_t)snprintf(list + used, sizeof list - used, "%s%s", before, names[i]);
    }
    const char *near = ls_closest(spec->name, names, KINDS);
    if (near)
        return ls_dataset_refuse(spec, "data.name", err,
                                 "unknown dataset \"%s\"; did you mean \"%s\"?", spec->name, near);
    return ls_dataset_refuse(spec, "data.name", err, "unknown dataset \"%s\"; expected %s",
                             spec->name, list);
}

int ls_dataset_open(ls_dataset **train, ls_dataset **test, const ls_dataset_spec *spec,
                    const ls_host *host, ls_error *err)
{
    *train = NULL;
    *test = NULL;
    for (int i = 0; i < spec->source_count; i++)
        if (strcmp(spec->sources[i]->name, spec->name) == 0)
            return ls_source_open(train, test, spec->sources[i], spec, host, err);
    for (size_t i = 0; i < KINDS; i++)
        if (strcmp(kinds[i]->about.name, spec->name) == 0)
            return kinds[i]->open(train, test, kinds[i], spec, host, err);
    return fail_unknown(spec, err);
}

const ls_dataset_info *ls_dataset_describe(const ls_dataset *ds)
{
    return &ds->info;
}

size_t ls_dataset_image_bytes(const ls_dataset *ds)
{
    const ls_dataset_info *info = &ds->info;
    return (size_t)info->channels * (size_t)info->height * (size_t)info->width;
}

int ls_dataset_read(const ls_dataset *ds, const uint32_t *rows, uint32_t count, uint8_t *images,
                    uint8_t *labels, ls_error *err)
{
    assert(ds->ops->size >= sizeof(ls_dataset_ops));
    return ds->ops->read(ds, rows, count, images, labels, err);
}

ls_dataset_view ls_dataset_resident(const ls_dataset *ds)
{
    return ds->ops->view ? ds->ops->view(ds) : (ls_dataset_view){NULL, NULL};
}

void ls_dataset_close(ls_dataset *ds)
{
    if (ds)
        ds->ops->close(ds);
}
