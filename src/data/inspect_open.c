/* SPDX-License-Identifier: MIT */
/* Opens data that is being inspected, with the keys that the user has set and those that were found
 * so far. The latter decide how targets, columns and missing numbers are read this time. */
#include "data/inspect_parts.h"

bool ls_inspect_is_given(const ls_inspection *l, const char *key)
{
    return l->given.set && cJSON_GetObjectItemCaseSensitive(l->given.set, key);
}

void ls_inspect_close(ls_inspection *l)
{
    for (int s = 0; s < 2; s++) {
        ls_dataset_close(l->split[s]);
        l->split[s] = NULL;
    }
}

/* Returns the keys of `data` with which the rows are looked at: those that the user has set, and
 * what was found so far. No rows are held out, and targets keep their unit. */
static ls_data_keys keys_of(const ls_inspection *l)
{
    ls_data_keys k = l->given.keys;
    const bool table = l->kind->form == LS_DATA_TABLE;
    k.x = l->x[0] ? l->x : NULL;
    k.y = l->y[0] ? l->y : NULL;
    k.test_x = l->test_x[0] ? l->test_x : NULL;
    k.test_y = l->test_y[0] ? l->test_y : NULL;
    /* test rows are read once it is known what the target is and which columns are left out */
    if (table && !l->target_name)
        k.test_path = NULL;
    if (l->target_name)
        k.target = (ls_names){.text = NULL, .list = l->target_name};
    else if (!ls_inspect_is_given(l, "target"))
        k.target.text = l->target;
    if (!ls_inspect_is_given(l, "drop"))
        k.drop.list = l->drop;
    if (!ls_inspect_is_given(l, "separator"))
        k.separator = l->separator;
    if (!ls_inspect_is_given(l, "decimal"))
        k.decimal = !l->decimal            ? LS_DECIMAL_AUTO
                    : l->decimal[0] == ',' ? LS_DECIMAL_COMMA
                                           : LS_DECIMAL_POINT;
    if (!ls_inspect_is_given(l, "encoding"))
        k.latin1 = l->encoding && l->encoding[0] == 'l';
    k.layout = l->last ? LS_CHANNELS_LAST : LS_CHANNELS_FIRST;
    if (k.labels == LS_LABELS_AUTO && table)
        k.labels = l->values ? LS_LABELS_VALUES : LS_LABELS_CLASSES;
    else if (k.labels == LS_LABELS_AUTO)
        k.labels = l->labels;
    if (!ls_inspect_is_given(l, "missing"))
        k.missing = table || l->fills ? LS_MISSING_MEAN : LS_MISSING_REFUSED;
    k.standardize = ls_inspect_is_given(l, "standardize") ? k.standardize > 0 : table || l->each;
    k.standardize_target = 0;
    k.validation = 0;
    /* The columns that a run would refuse are left out, unless the user has said which ones. */
    k.lenient = !(ls_inspect_is_given(l, "drop") && l->target_name);
    return k;
}

int ls_inspect_open(ls_inspection *l, const ls_host *host, ls_error *err)
{
    const ls_dataset_spec spec = {.name = l->kind->name,
                                  .path = l->x[0] ? (l->folder[0] ? l->folder : NULL) : l->path,
                                  .limit = l->given.limit,
                                  .keys = keys_of(l)};
    ls_inspect_close(l);
    return ls_dataset_open(&l->split[0], &l->split[1], &spec, host, err);
}
