/* SPDX-License-Identifier: MIT */
/* The kinds of datasets (kinds.def), and opening a dataset. */
#include "data/dataset.h"

#include "base/error.h"
#include "base/host.h"
#include "data/kinds.h"
#include "data/own_rows.h"

#include <stdio.h>
#include <string.h>

#define LS_DATASET(name) &ls_dataset_##name,
const ls_dataset_kind *const ls_dataset_kinds[] = {
#include "data/kinds.def"
    NULL};
#undef LS_DATASET

enum { KINDS = sizeof ls_dataset_kinds / sizeof *ls_dataset_kinds - 1 };

static const ls_dataset_kind *find_kind(const char *name)
{
    for (size_t i = 0; i < KINDS; i++)
        if (strcmp(ls_dataset_kinds[i]->about.name, name) == 0)
            return ls_dataset_kinds[i];
    return NULL;
}

static int fail_unknown(const ls_dataset_spec *spec, ls_error *err)
{
    const ls_opening none = {.spec = spec, .err = err};
    const char *names[KINDS];
    char list[256] = "";
    size_t used = 0;
    for (size_t i = 0; i < KINDS; i++) {
        const char *before = i == 0 ? "" : i + 1 < KINDS ? ", " : " or ";
        names[i] = ls_dataset_kinds[i]->about.name;
        if (used < sizeof list)
            used += (size_t)snprintf(list + used, sizeof list - used, "%s%s", before, names[i]);
    }
    const char *near = ls_closest(spec->name, names, KINDS);
    if (near)
        return ls_dataset_refuse(&none, "data.name", "unknown dataset \"%s\"; did you mean \"%s\"?",
                                 spec->name, near);
    return ls_dataset_refuse(&none, "data.name", "unknown dataset \"%s\"; expected %s", spec->name,
                             list);
}

int ls_dataset_find(const ls_dataset_about **out, const ls_dataset_spec *spec, ls_error *err)
{
    const ls_dataset_kind *kind = find_kind(spec->name);
    *out = kind ? &kind->about : NULL;
    return kind ? LS_OK : fail_unknown(spec, err);
}

ls_dataset_form ls_dataset_form_of(const char *name)
{
    const ls_dataset_kind *kind = name ? find_kind(name) : NULL;
    return kind ? kind->about.form : LS_DATA_OF_CALLER;
}

bool ls_is_listed(const char *list, char separator, const char *name)
{
    const size_t n = strlen(name);
    for (const char *end, *p = list; p; p = end ? end + 1 : NULL) {
        end = strchr(p, separator);
        if (strncmp(p, name, n) == 0 && (p[n] == separator || p[n] == '\0'))
            return true;
    }
    return false;
}

static bool has_key(const ls_dataset_kind *kind, const char *key)
{
    return ls_is_listed(kind->about.keys, ' ', key);
}

static const ls_data_source *find_source(const ls_dataset_spec *spec)
{
    for (int i = 0; i < spec->source_count; i++)
        if (strcmp(spec->sources[i]->name, spec->name) == 0)
            return spec->sources[i];
    return NULL;
}

int ls_dataset_check_key(const ls_dataset_spec *spec, const char *key, ls_error *err)
{
    const bool own = find_source(spec) != NULL;
    const ls_dataset_kind *kind = own ? NULL : find_kind(spec->name);
    char list[256] = "";
    size_t used = 0;
    /* an unknown data.name is reported when the dataset is opened */
    if (own ? ls_is_listed(LS_OWN_ROWS_KEYS, ' ', key) : !kind || has_key(kind, key))
        return LS_OK;
    for (size_t i = 0; i < KINDS; i++)
        if (has_key(ls_dataset_kinds[i], key) && used < sizeof list)
            used += (size_t)snprintf(list + used, sizeof list - used, "%s%s", used ? ", " : "",
                                     ls_dataset_kinds[i]->about.name);
    if (used == 0 && kind && ls_is_listed(LS_OWN_ROWS_KEYS, ' ', key))
        snprintf(list, sizeof list, "a program's own rows");
    return list[0] == '\0' ? LS_OK
                           : ls_fail(err, LS_ECONFIG,
                                     "data.%s: a key of %s; \"%.64s\" does not have it, remove it",
                                     key, list, spec->name);
}

/* Fails if the config has a long list in data.mean or data.std that the kind does not use. */
static int check_fixed_scale(const ls_dataset *train, const ls_opening *o)
{
    const ls_data_keys *k = &o->spec->keys;
    const bool used = k->input_format || (train->info.prep && train->info.prep->scales);
    const cJSON *list = k->mean ? k->mean : k->std;
    return !list || used ? LS_OK
                         : ls_dataset_refuse(o, k->mean ? "data.mean" : "data.std",
                                             "expected 1 to 4 numbers for this kind of data, "
                                             "found %d",
                                             cJSON_GetArraySize(list));
}

int ls_dataset_open_kind(ls_dataset **train, ls_dataset **test, const ls_dataset_kind *kind,
                         const ls_dataset_spec *spec, const ls_host *host, ls_error *err)
{
    const ls_opening o = {kind, spec, host, err};
    ls_dataset *split[2] = {NULL, NULL};
    int status = kind->open(split, &o);
    if (status == LS_OK)
        status = check_fixed_scale(split[0], &o);
    if (status == LS_OK)
        status = ls_scale_split_targets(split, &o);
    if (status == LS_OK && spec->keys.validation > 0)
        status = ls_hold_out(split, &o);
    for (int s = 0; status && s < 2; s++) {
        ls_dataset_close(split[s]);
        split[s] = NULL;
    }
    *train = split[0];
    *test = split[1];
    return status;
}

int ls_dataset_open(ls_dataset **train, ls_dataset **test, const ls_dataset_spec *spec,
                    const ls_host *host, ls_error *err)
{
    const ls_data_source *source = find_source(spec);
    const ls_dataset_kind own = {
        .about = {.keys = LS_OWN_ROWS_KEYS}, .open = ls_own_rows_open, .detail = source};
    const ls_dataset_kind *kind = source ? &own : find_kind(spec->name);
    *train = *test = NULL;
    return kind ? ls_dataset_open_kind(train, test, kind, spec, host, err)
                : fail_unknown(spec, err);
}
