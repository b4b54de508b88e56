#include "data/dataset.h"

#include "base/closest.h"
#include "base/error.h"
#include "data/kinds.h"
#include "data/source.h"

#include <assert.h>
#include <string.h>

/* Every dataset there is. The names stand twice so that ls_dataset_names can hand them out. */
static const ls_dataset_kind kinds[] = {
    {"fashion_mnist", ls_idx_open, &ls_idx_fashion_mnist},
    {"mnist", ls_idx_open, &ls_idx_mnist},
    {"cifar10", ls_cifar_open, &ls_cifar10},
    {"synthetic", ls_synthetic_open, NULL},
};
static const char *const names[] = {"fashion_mnist", "mnist", "cifar10", "synthetic"};

enum { KINDS = sizeof kinds / sizeof *kinds };
_Static_assert(sizeof names / sizeof *names == KINDS, "a name for each kind");

const char *const *ls_dataset_names(size_t *count)
{
    *count = KINDS;
    return names;
}

int ls_dataset_open(ls_dataset **train, ls_dataset **test, const ls_dataset_spec *spec,
                    const ls_host *host, ls_error *err)
{
    *train = NULL;
    *test = NULL;
    for (int i = 0; i < spec->source_count; i++)
        if (strcmp(spec->sources[i]->name, spec->name) == 0)
            return ls_source_open(train, test, spec->sources[i], spec->limit, host, err);
    for (size_t i = 0; i < KINDS; i++)
        if (strcmp(kinds[i].name, spec->name) == 0)
            return kinds[i].open(train, test, &kinds[i], spec, host, err);
    const char *near = ls_closest(spec->name, names, KINDS);
    if (near)
        return ls_fail(err, LS_ECONFIG, "data.name: unknown dataset \"%s\"; did you mean \"%s\"?",
                       spec->name, near);
    return ls_fail(err, LS_ECONFIG,
                   "data.name: unknown dataset \"%s\"; expected fashion_mnist, mnist, cifar10 or "
                   "synthetic",
                   spec->name);
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
