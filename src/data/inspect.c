/* SPDX-License-Identifier: MIT */
/* Inspects data (inspect.h). Each kind of data is opened in the same way as for
 * training, so that the description shows the rows as training will get them. */
#include "data/inspect.h"

#include "base/error.h"
#include "base/host.h"
#include "data/curve.h"
#include "data/kinds.h"
#include "data/scales.h"
#include "formats/arrays.h"

#include <fcntl.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

enum {
    /* a column of numbers is taken as classes only if it has at most this many different numbers */
    MOST_CLASSES = 20,
    /* Other whole numbers are taken as classes only if they are those from 0 on, fewer than this,
     * and each occurs in at least FEWEST_ROWS rows. */
    MOST_NUMBERED = 1 << 16,
    FEWEST_ROWS = 5,
    VALUES = 1 << 22, /* largest number of values from which mean and deviation are computed */
    /* largest number of pictures that are decoded to find out their size and whether they have
     * colours */
    PICTURES = 24,
    /* Pictures become squares of the median of their shorter sides in pixels, at most this. */
    LARGEST_SIDE = 64
};

static bool is_file(const char *folder, const char *name)
{
    char path[4400];
    struct stat st;
    snprintf(path, sizeof path, "%s%s%s", folder, folder[0] ? "/" : "", name);
    return stat(path, &st) == 0 && !S_ISDIR(st.st_mode);
}

/* Returns whether the user has set a key of `data`. */
static bool is_given(const ls_inspection *l, const char *key)
{
    return l->given.set && cJSON_GetObjectItemCaseSensitive(l->given.set, key);
}

/* ---- the kind of data ------------------------------------------------------------------------ */

/* l->path is a file of rows, such as "x.npy" or "X_train.npy". Finds the file of its targets in the
 * same folder, unless data.y names it. */
static int find_pair(ls_inspection *l, ls_error *err)
{
    const char *slash = strrchr(l->path, '/'), *name = slash ? slash + 1 : l->path;
    snprintf(l->folder, sizeof l->folder, "%.*s", slash ? (int)(slash - l->path) : 0, l->path);
    snprintf(l->x, sizeof l->x, "%.250s", name);
    if (is_given(l, "y"))
        return LS_OK;
    snprintf(l->y, sizeof l->y, "%.250s", name);
    char *mark = strpbrk(l->y, "xX");
    if (mark)
        *mark = *mark == 'x' ? 'y' : 'Y';
    if (mark && !is_file(l->folder, l->y))
        *mark = 'y';
    if (mark && is_file(l->folder, l->y))
        return LS_OK;
    return ls_fail(err, LS_ENOENT,
                   "%.300s: expected the targets of these rows beside it, in %.200s; name the two "
                   "files x.npy and y.npy, or set data.y to the name of the file of targets",
                   l->path, mark ? l->y : "y.npy");
}

/* Returns whether, by its name, a file is one of the files of a public dataset, such as
 * "train-images-idx3-ubyte.gz" or "data_batch_1.bin". */
static bool is_of_several(const char *path)
{
    const char *slash = strrchr(path, '/'), *name = slash ? slash + 1 : path;
    return strstr(name, "-ubyte") || strncmp(name, "data_batch_", 11) == 0 ||
           strncmp(name, "test_batch", 10) == 0;
}

/* Returns the kind that the name and the form of the path suggest. */
static const ls_dataset_about *guess_kind(const ls_inspection *l, bool directory)
{
    const char *x = l->given.keys.x;
    if (directory && (is_file(l->path, "x.npy") || (x && is_file(l->path, x))))
        return &ls_dataset_npy.about;
    if (directory)
        return &ls_dataset_folder.about;
    if (ls_path_ends_with(l->path, ".safetensors"))
        return &ls_dataset_safetensors.about;
    return ls_path_is_npz(l->path) || ls_path_ends_with(l->path, ".npy") ? &ls_dataset_npy.about
                                                                         : &ls_dataset_csv.about;
}

/* Returns the kind that data.name names, or NULL if it has no files. */
static const ls_dataset_about *named_kind(const char *name)
{
    for (const ls_dataset_kind *const *kind = ls_dataset_kinds; *kind; kind++)
        if (strcmp((*kind)->about.name, name) == 0 && (*kind)->about.form != LS_DATA_GENERATED)
            return &(*kind)->about;
    return NULL;
}

/* Checks the keys that the user has set: each must be one that data of this kind have. */
static int check_given(const ls_inspection *l, ls_error *err)
{
    const ls_dataset_spec spec = {.name = l->kind->name};
    const cJSON *key;
    int status = LS_OK;
    cJSON_ArrayForEach(key, l->given.set)
    {
        if (status == LS_OK)
            status = ls_dataset_check_key(&spec, key->string, err);
    }
    if (status == LS_OK && is_given(l, "path"))
        status = ls_fail(err, LS_EINVAL,
                         "data.path: expected the path of the data as the argument of init, which "
                         "is %.300s, not as a key",
                         l->path);
    return status;
}

/* Finds the names of the files of arrays: those that the user has set, else the usual ones. */
static int find_arrays(ls_inspection *l, bool directory, ls_error *err)
{
    const ls_data_keys *k = &l->given.keys;
    int status = LS_OK;
    if (directory) {
        snprintf(l->folder, sizeof l->folder, "%.4000s", l->path);
        strcpy(l->x, "x.npy");
        strcpy(l->y, "y.npy");
    } else if (ls_path_ends_with(l->path, ".npy"))
        status = find_pair(l, err);
    else if (k->x)
        snprintf(l->folder, sizeof l->folder, "%.4000s", l->path);
    if (l->x[0] && is_file(l->folder, "test_x.npy") && is_file(l->folder, "test_y.npy")) {
        strcpy(l->test_x, "test_x.npy");
        strcpy(l->test_y, "test_y.npy");
    }
    const char *const given[4] = {k->x, k->y, k->test_x, k->test_y};
    char *const to[4] = {l->x, l->y, l->test_x, l->test_y};
    for (int i = 0; i < 4; i++)
        if (given[i])
            snprintf(to[i], sizeof l->x, "%.250s", given[i]);
    return status;
}

/* Fails if an option that is about a table was given for other data. */
static int check_options(const ls_inspection *l, ls_error *err)
{
    const char *option = l->target      ? "--target"
                         : l->decimal   ? "--decimal"
                         : l->separator ? "--separator"
                         : l->encoding  ? "--encoding"
                                        : NULL;
    return option && l->kind->form != LS_DATA_TABLE
               ? ls_fail(err, LS_EINVAL, "%s: is about a table; %.300s is none", option, l->path)
               : LS_OK;
}

static int find_kind(ls_inspection *l, ls_error *err)
{
    struct stat st;
    if (stat(l->path, &st) != 0)
        return ls_fail(err, LS_ENOENT,
                       "%.300s: no such file or directory; expected a table (.csv), a folder with "
                       "a sub-folder of pictures for each class, or arrays (x.npy with y.npy)",
                       l->path);
    const bool directory = S_ISDIR(st.st_mode);
    if (!directory && is_of_several(l->path))
        return ls_fail(err, LS_EINVAL,
                       "%.300s: one of the files of a data set; name the directory that has all of "
                       "them",
                       l->path);
    l->kind = is_given(l, "name") ? named_kind(l->given.name) : guess_kind(l, directory);
    if (!l->kind)
        return ls_fail(err, LS_EINVAL,
                       "data.name: expected the kind of the data in %.300s, such as csv, npy or "
                       "folder, found \"%.60s\"",
                       l->path, l->given.name);
    int status = check_options(l, err);
    if (status == LS_OK && l->kind == &ls_dataset_npy.about)
        status = find_arrays(l, directory, err);
    if (status == LS_OK && l->kind == &ls_dataset_safetensors.about)
        status = find_arrays(l, false, err);
    return status;
}

/* ---- tables ---------------------------------------------------------------------------------- */

static void close_data(ls_inspection *l)
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
    else if (!is_given(l, "target"))
        k.target.text = l->target;
    if (!is_given(l, "drop"))
        k.drop.list = l->drop;
    if (!is_given(l, "separator"))
        k.separator = l->separator;
    if (!is_given(l, "decimal"))
        k.decimal = !l->decimal            ? LS_DECIMAL_AUTO
                    : l->decimal[0] == ',' ? LS_DECIMAL_COMMA
                                           : LS_DECIMAL_POINT;
    if (!is_given(l, "encoding"))
        k.latin1 = l->encoding && l->encoding[0] == 'l';
    k.layout = l->last ? LS_CHANNELS_LAST : LS_CHANNELS_FIRST;
    if (k.labels == LS_LABELS_AUTO && table)
        k.labels = l->values ? LS_LABELS_VALUES : LS_LABELS_CLASSES;
    else if (k.labels == LS_LABELS_AUTO)
        k.labels = l->labels;
    if (!is_given(l, "missing"))
        k.missing = table || l->fills ? LS_MISSING_MEAN : LS_MISSING_REFUSED;
    k.standardize = is_given(l, "standardize") ? k.standardize > 0 : table || l->each;
    k.standardize_target = 0;
    k.validation = 0;
    /* The columns that a run would refuse are left out, unless the user has said which ones. */
    k.lenient = !(is_given(l, "drop") && l->target_name);
    return k;
}

static int open_data(ls_inspection *l, const ls_host *host, ls_error *err)
{
    const ls_dataset_spec spec = {.name = l->kind->name,
                                  .path = l->x[0] ? (l->folder[0] ? l->folder : NULL) : l->path,
                                  .limit = l->given.limit,
                                  .keys = keys_of(l)};
    close_data(l);
    return ls_dataset_open(&l->split[0], &l->split[1], &spec, host, err);
}

static const ls_column_summary *target_of(const ls_dataset_info *info)
{
    for (int i = 0; i < info->columns; i++)
        if (info->column[i].use == LS_COLUMN_CLASS || info->column[i].use == LS_COLUMN_VALUE)
            return &info->column[i];
    return NULL;
}

/* Returns whether the target is taken as a number: its column has only numbers, and they are too
 * many for classes, or some have a fraction. */
static bool are_values(const ls_dataset_info *info)
{
    const ls_column_summary *target = target_of(info);
    if (!target || target->use != LS_COLUMN_CLASS || target->numeric < target->levels)
        return false;
    return target->broken > 0 || target->levels > MOST_CLASSES;
}

/* Returns the reason why a column cannot help to predict new rows; NULL: there is no such
 * reason. */
static const char *useless(const ls_column_summary *c, uint32_t rows)
{
    const uint32_t present = rows - c->missing;
    if (c->use == LS_COLUMN_DROPPED && c->wrong_dates)
        return c->wrong_dates;
    if (c->use == LS_COLUMN_DROPPED && c->looks_like)
        return "has texts that are neither names of something nor numbers, such as ";
    if (c->use == LS_COLUMN_DROPPED) /* a column without a name, which is always left out */
        return c->levels > 0 ? "has more than 1000 different texts" : NULL;
    if (c->constant && present == 0)
        return "has no value in any row";
    if (c->constant)
        return c->missing == 0
                   ? "has the same value in every row"
                   : "has the same value in every row that has one; data.categorical makes it tell "
                     "which rows have one";
    if (c->counts)
        return "counts the rows";
    if (c->use == LS_COLUMN_LEVELS && present >= 20 && 2 * (uint32_t)c->levels > present)
        return "has nearly as many different texts as rows";
    return NULL;
}

/* Adds the columns that cannot help to l->drop, and the reasons to l->left_out_why, unless the user
 * has said which columns to leave out. Returns the number of these columns. */
static int drop_useless(ls_inspection *l, const ls_dataset_info *info)
{
    const bool chosen = is_given(l, "drop");
    int dropped = 0;
    for (int i = 0; i < info->columns; i++) {
        const ls_column_summary *c = &info->column[i];
        const char *why = useless(c, info->rows);
        l->fills |= c->missing > 0 && (!why || chosen);
        if (!why && c->use == LS_COLUMN_NUMBER && c->step != 0 && info->columns > 2)
            ls_buffer_format(&l->left_out_why,
                             "  %.60s goes %s evenly from row to row, as a time or an id does "
                             "(data.drop leaves it out)\n",
                             c->name, c->step > 0 ? "up" : "down");
        if (c->unread_date[0])
            ls_buffer_format(&l->left_out_why,
                             "  %.60s looks like dates (%s), but has %s; dates are read if they "
                             "are written as 2024-12-31\n",
                             c->name, c->unread_date,
                             c->use == LS_COLUMN_NUMBER ? "numbers" : "texts");
        if (!why || chosen || c->use == LS_COLUMN_CLASS || c->use == LS_COLUMN_VALUE ||
            c->use == LS_COLUMN_WEIGHT)
            continue;
        cJSON_AddItemToArray(l->drop, cJSON_CreateString(c->name));
        l->commas |= strchr(c->name, ',') != NULL;
        ls_buffer_format(&l->left_out_why, "  %.60s is left out (data.drop): it %s%s\n", c->name,
                         why, c->looks_like ? c->looks_like : "");
        dropped++;
    }
    return dropped;
}

static bool is_number(const char *text)
{
    char *end;
    (void)strtod(text, &end);
    return end != text && text[strspn(text, "+-.,0123456789eE")] == '\0';
}

/* Warns if the names of all columns are numbers: the table has probably no header. Names that count
 * the columns, from 0 or 1 on, are those of a program. */
static void warn_of_header(const ls_inspection *l, const ls_dataset_info *info)
{
    bool counts[2] = {true, true};
    for (int i = 0; i < info->columns; i++) {
        const char *name = info->column[i].name;
        if (!is_number(name))
            return;
        for (int k = 0; k < 2; k++)
            counts[k] = counts[k] && strtod(name, NULL) == i + k;
    }
    if (counts[0] || counts[1])
        return;
    ls_log(l->host, LS_LOG_WARNING,
           "%.300s: the first line looks like data (\"%.40s\", \"%.40s\"), but is taken for the "
           "names of the columns and not learnt; put a line with names before it",
           l->path, info->column[0].name, info->column[info->columns - 1].name);
}

static int look_at_table(ls_inspection *l, ls_error *err)
{
    const bool chosen = l->given.keys.labels != LS_LABELS_AUTO;
    int status = open_data(l, l->host, err);
    if (status && err->reason == LS_REASON_CLASSES && !chosen) {
        l->values = true;
        status = open_data(l, l->host, err);
    }
    if (status)
        return status;
    const ls_dataset_info *info = ls_dataset_describe(l->split[0]);
    const bool values = !chosen && are_values(info);
    const int dropped = drop_useless(l, info);
    l->values_why = values;
    l->values |= values || l->given.keys.labels == LS_LABELS_VALUES;
    warn_of_header(l, info);
    l->target_name = cJSON_CreateString(target_of(info)->name);
    l->target = l->target_name->valuestring;
    const bool again = values || dropped || is_given(l, "drop") || l->given.keys.test_path;
    status = again ? open_data(l, l->host, err) : LS_OK;
    if (status && dropped && err &&
        l->left_out_why.text) { /* say why the first column was left out */
        const ls_error cause = *err;
        const char *why = l->left_out_why.text + strspn(l->left_out_why.text, " ");
        ls_fail(err, status, "%.300s; %.*s", cause.text, (int)strcspn(why, "\n"), why);
    }
    return status;
}

/* ---- arrays ---------------------------------------------------------------------------------- */

/* Returns whether the last dimension is probably the channels: it is 1, 3 or 4, and the two others
 * are larger. */
static bool may_be_last(const ls_dataset_info *info)
{
    return (info->width == 1 || info->width == 3 || info->width == 4) && info->height > 4 &&
           info->channels > 4;
}

/* Counts the rows of each target, where `target` are [rows] whole numbers, and returns whether
 * they are the numbers from 0 on, each in at least FEWEST_ROWS rows. */
static bool are_numbered(const ls_inspection *l, const float *target, uint32_t rows)
{
    if (l->least != 0 || l->most >= MOST_NUMBERED)
        return false;
    const size_t n = (size_t)l->most + 1;
    uint32_t *count = ls_alloc_array(l->host, n, sizeof *count);
    for (uint32_t i = 0; count && i < rows; i++)
        count[(size_t)target[i]]++;
    size_t k = 0;
    while (count && k < n && count[k] >= FEWEST_ROWS)
        k++;
    ls_free(l->host, count);
    return count && k == n;
}

/* Finds out whether the targets, one number for each row, are whole, and counts the different ones
 * up to MOST_CLASSES + 1. */
static void count_targets(ls_inspection *l, const float *target, uint32_t rows)
{
    float seen[MOST_CLASSES + 1];
    l->whole = true;
    l->least = l->most = (double)target[0];
    for (uint32_t i = 0; i < rows; i++) {
        uint32_t k = 0;
        while (k < l->different && seen[k] != target[i])
            k++;
        if (k == l->different && k <= MOST_CLASSES)
            seen[l->different++] = target[i];
        l->whole = l->whole && target[i] == floorf(target[i]);
        l->least = fmin(l->least, (double)target[i]);
        l->most = fmax(l->most, (double)target[i]);
    }
}

/* Decides whether targets that are one number for each row, and were read as values, are classes.
 * The rule for tables is the same (are_values), except that a table's classes are at most
 * MOST_CLASSES. */
static int choose_labels(ls_inspection *l, ls_error *err)
{
    const ls_dataset_info *info = ls_dataset_describe(l->split[0]);
    const float *target = ls_dataset_resident(l->split[0]).targets;
    if (info->targets != 1) {
        l->labels = LS_LABELS_AUTO;
        return LS_OK;
    }
    count_targets(l, target, info->rows);
    if (l->different < 2)
        return ls_fail(err, LS_EDATA,
                       "%.300s: expected at least two different targets, found %g in each of the "
                       "%u rows",
                       l->path, l->least, (unsigned)info->rows);
    if (l->whole && (l->different <= MOST_CLASSES || are_numbered(l, target, info->rows)))
        l->labels = LS_LABELS_CLASSES;
    return LS_OK;
}

/* Returns whether the targets of arrays are texts, which are classes. */
static bool are_texts(const ls_inspection *l)
{
    char path[LS_PATH_BYTES];
    ls_array y;
    ls_error why; /* opening the data reports it */
    const char *base = l->x[0] ? l->folder : l->path;
    if (l->kind != &ls_dataset_npy.about ||
        ls_array_open_labels(&y,
                             !l->y[0]          ? l->path
                             : base[0] == '\0' ? l->y
                                               : ls_path_join(path, base, l->y),
                             ls_names_of_targets, &why) != LS_OK)
        return false;
    const bool texts = y.type == LS_ARRAY_TEXT;
    ls_array_close(&y);
    return texts;
}

/* Opens arrays for the first time: targets are values unless they are texts, or the user has said
 * what they are. */
static int open_arrays(ls_inspection *l, ls_error *err)
{
    l->silent = *l->host;
    l->silent.log = NULL;
    l->labels = l->given.keys.labels != LS_LABELS_AUTO ? LS_LABELS_AUTO
                : are_texts(l)                         ? LS_LABELS_CLASSES
                                                       : LS_LABELS_VALUES;
    int status = open_data(l, &l->silent, err);
    if (status == LS_EDATA && !is_given(l, "missing")) {
        l->fills = true; /* if that is what is wrong, the data can be opened now */
        status = open_data(l, &l->silent, err);
    }
    if (status == LS_OK && l->labels == LS_LABELS_VALUES)
        status = choose_labels(l, err);
    return status;
}

/* Returns whether the data have an array `name`; `all`: the open safetensors file, if it is one. */
static bool has_array(const ls_inspection *l, const ls_tensors *all, const char *name)
{
    const char *const names[] = {name, NULL};
    char file[64];
    if (l->kind == &ls_dataset_safetensors.about)
        return ls_tensors_has(all, name);
    if (ls_path_is_npz(l->path))
        return ls_array_is_there(l->path, names);
    snprintf(file, sizeof file, "%.50s.npy", name);
    return is_file(l->folder, file);
}

/* Returns whether `name` is the array, or the file `name`.npy, with the test rows. */
static bool is_test_array(const ls_inspection *l, const char *name)
{
    const bool files = l->kind == &ls_dataset_npy.about && !ls_path_is_npz(l->path);
    const char *used = l->test_x[0] || files ? l->test_x : "test_x";
    const size_t n = strlen(name);
    return strncmp(used, name, n) == 0 && (used[n] == '\0' || strcmp(used + n, ".npy") == 0);
}

/* Adds a line about arrays of rows that have the names of test or validation rows, and are not
 * used. */
static int find_spare_arrays(ls_inspection *l, ls_error *err)
{
    ls_tensors all = {0};
    ls_buffer text;
    const bool tensors = l->kind == &ls_dataset_safetensors.about;
    /* from an .npz file a run takes the first of these arrays, unless the user has named one */
    bool taken = tensors || !ls_path_is_npz(l->path) || l->test_x[0];
    int spare = 0, status = tensors ? ls_tensors_open(&all, l->path, l->host, err) : LS_OK;
    ls_buffer_init(&text, l->host);
    for (const char *const *name = ls_names_of_test_rows; status == LS_OK && *name; name++) {
        if (!has_array(l, &all, *name))
            continue;
        if (taken && !is_test_array(l, *name))
            ls_buffer_format(&text, "%s%s", spare++ ? ", " : "", *name);
        taken = true;
    }
    ls_tensors_close(&all);
    if (spare > 0)
        ls_buffer_format(&l->left_out_why,
                         "  %s %s not used (data.test_x and data.test_y name the rows that are)\n",
                         text.text ? text.text : "", spare > 1 ? "are" : "is");
    ls_buffer_fini(&text);
    return status;
}

static int look_at_arrays(ls_inspection *l, ls_error *err)
{
    int status = open_arrays(l, err);
    if (status == LS_OK)
        status = find_spare_arrays(l, err);
    if (status)
        return status;
    l->last = is_given(l, "layout") ? l->given.keys.layout == LS_CHANNELS_LAST
                                    : may_be_last(ls_dataset_describe(l->split[0]));
    return open_data(l, l->host, err);
}

/* Returns whether each column, or each channel of floats, is to have a scale of its own. Columns
 * are a table without names. The keys data.mean and data.std do not hold every number. */
static bool scales_each(const ls_inspection *l)
{
    const double least = 1e-6, most = 1e6;
    const bool columns = l->height == 1 && l->width == 1;
    return (l->floats || columns) && !is_given(l, "mean") && !is_given(l, "std") &&
           (columns || fabs(l->mean) > most || l->deviation < least || l->deviation > most);
}

static double value_at(const void *of, size_t i)
{
    const ls_inspection *l = of;
    const ls_dataset_view view = ls_dataset_resident(l->split[0]);
    return ls_dataset_describe(l->split[0])->row_type == LS_ROW_F32 ? (double)view.values[i]
                                                                    : (double)view.images[i];
}

/* Adds a line about the columns that have the same value in every row. */
static int find_constant_columns(ls_inspection *l, ls_error *err)
{
    enum { NAMED = 10 };
    const ls_measured_numbers all = {value_at, l, l->rows, (size_t)l->channels, l->channels};
    double *mean = ls_alloc_array(l->host, 2 * (size_t)l->channels, sizeof *mean);
    int count = 0;
    bool wide;
    if (!mean)
        return ls_fail(err, LS_ENOMEM, "out of memory for %d columns", l->channels);
    ls_scale_measure(&all, mean, mean + l->channels, &wide);
    for (int i = 0; i < l->channels; i++)
        if (mean[l->channels + i] == 0 && count++ < NAMED)
            ls_buffer_format(&l->left_out_why, "%s%d", count > 1 ? ", " : "  left out: column ", i);
    if (count > 0)
        ls_buffer_format(&l->left_out_why,
                         "%s, counted from 0, with the same value in every row; in new rows any "
                         "value counts as this one\n",
                         count > NAMED ? " …" : "");
    ls_free(l->host, mean);
    return LS_OK;
}

/* Computes mean and deviation of the values of the first rows. */
static void measure(ls_inspection *l, const ls_dataset *ds)
{
    const ls_dataset_info *info = ls_dataset_describe(ds);
    const ls_dataset_view view = ls_dataset_resident(ds);
    const size_t each = (size_t)info->channels * (size_t)info->height * (size_t)info->width;
    const size_t most = VALUES / each + 1, rows = info->rows < most ? info->rows : most;
    const size_t n = rows * each;
    double sum = 0, squares = 0;
    for (size_t i = 0; i < n; i++)
        sum += l->floats ? (double)view.values[i] : view.images[i] / 255.0;
    l->mean = n ? sum / (double)n : 0;
    for (size_t i = 0; i < n; i++) {
        const double d = (l->floats ? (double)view.values[i] : view.images[i] / 255.0) - l->mean;
        squares += d * d;
    }
    l->deviation = squares > 0 ? sqrt(squares / (double)n) : 1;
}

static void take_shape(ls_inspection *l)
{
    const ls_dataset_info *info = ls_dataset_describe(l->split[0]);
    l->table = info;
    l->rows = info->rows;
    l->test_rows = ls_dataset_describe(l->split[1])->rows;
    l->classes = info->classes;
    l->targets = info->targets;
    l->channels = info->channels;
    l->height = info->height;
    l->width = info->width;
    l->floats = info->row_type == LS_ROW_F32;
}

/* ---- pictures -------------------------------------------------------------------------------- */

static int by_size(const void *a, const void *b)
{
    return *(const int *)a - *(const int *)b;
}

/* Decodes up to PICTURES pictures, spread over the list. Finds out whether one of them has colours,
 * and stores the median of their shorter sides in *side. */
static int look_at_some(ls_inspection *l, int *side, ls_error *err)
{
    enum { SIDE = 16, ALL = SIDE * SIDE };
    const ls_picture_form small = {3, SIDE, SIDE, {0}, 0};
    uint8_t pixel[3 * ALL];
    int shorter[PICTURES], count = 0;
    ls_image_memory kept = {0};
    const ls_folder_listing *list = &l->listed.split[0];
    const ls_pictures *pictures;
    int status = ls_pictures_find(&pictures, l->pack.pictures, err);
    if (status)
        return status;
    l->grey = true;
    for (size_t i = 0; i < PICTURES && i < list->count; i++) {
        const size_t at = list->count <= PICTURES ? i : i * list->count / PICTURES;
        status = pictures->fit(pixel, &small, AT_FDCWD, list->entry[at].path, &kept, l->host, err);
        if (status)
            continue; /* a run reports such pictures */
        shorter[count++] = kept.width < kept.height ? kept.width : kept.height;
        for (int k = 0; k < ALL; k++)
            l->grey = l->grey && pixel[k] == pixel[k + ALL] && pixel[k] == pixel[k + 2 * ALL];
    }
    pictures->memory_free(&kept, l->host);
    if (count == 0)
        return status;
    qsort(shorter, (size_t)count, sizeof *shorter, by_size);
    *side = shorter[count / 2];
    return LS_OK;
}

static int look_at_folder(ls_inspection *l, ls_error *err)
{
    const ls_data_keys *k = &l->given.keys;
    int side = LARGEST_SIDE;
    l->pack.folder = l->path;
    l->pack.test_folder = k->test_path;
    l->listed = (ls_folder){.p = &l->pack, .host = l->host, .err = err};
    int status = ls_folder_list(&l->listed);
    if (status == LS_OK)
        status = look_at_some(l, &side, err);
    l->rows = (uint32_t)l->listed.split[0].count;
    if (l->given.limit && l->given.limit < l->rows)
        l->rows = l->given.limit;
    l->test_rows = (uint32_t)l->listed.split[1].count;
    l->classes = (int)l->listed.classes.count;
    l->channels = is_given(l, "channels") || k->pictures ? k->channels : l->grey ? 1 : 3;
    l->grey = l->channels == 1;
    l->resize = k->resize;
    l->pictures = k->pictures;
    ls_data_keys keys = *k;
    if (!is_given(l, "image_size"))
        keys.image_size = side < LARGEST_SIDE ? side : LARGEST_SIDE;
    const ls_picture_form form = ls_form_of_keys(&keys);
    l->height = form.height;
    l->width = form.width;
    l->mean = 0.5;
    l->deviation = 0.25;
    l->listed.form = form;
    l->listed.form.channels = l->channels;
    return status == LS_OK ? ls_folder_check_differ(&l->listed) : status;
}

/* ---- public datasets with known file names --------------------------------------------------- */

/* Returns the kind of a directory with the files of MNIST: the files of Fashion-MNIST have the same
 * names. */
static const ls_dataset_about *which_mnist(const ls_inspection *l)
{
    return ls_dataset_describe(l->split[0])->payload == LS_PAYLOAD_PUBLISHED ||
                   strstr(l->path, "ashion")
               ? &ls_dataset_fashion_mnist.about
               : &ls_dataset_mnist.about;
}

/* Tries to open the directory as each of the public datasets. If it contains the files of none of
 * them, sets l->kind to that of a folder of images. */
static int look_for_known(ls_inspection *l, ls_error *err)
{
    int status = LS_ENOENT;
    l->silent = *l->host;
    l->silent.log = NULL;
    for (const ls_dataset_kind *const *kind = ls_dataset_kinds; *kind; kind++) {
        if ((*kind)->about.form != LS_DATA_PUBLIC)
            continue;
        l->kind = &(*kind)->about;
        status = open_data(l, &l->silent, err);
        if (status == LS_OK || err->reason != LS_REASON_NO_FILES)
            break;
        l->kind = &ls_dataset_folder.about;
    }
    if (l->kind->form == LS_DATA_FOLDER)
        return LS_OK;
    if (status == LS_OK &&
        (l->kind == &ls_dataset_mnist.about || l->kind == &ls_dataset_fashion_mnist.about))
        l->kind = which_mnist(l);
    return status;
}

/* ---- rare classes ---------------------------------------------------------------------------- */

static int32_t label_of(const ls_inspection *l, const ls_dataset_view *view, uint32_t row)
{
    return l->listed.p ? l->listed.split[0].entry[row].label
                       : view->labels[view->row ? view->row[row] : row];
}

/* Finds the rarest class (l->rare). Errors: LS_ENOMEM. */
static int find_rare(ls_inspection *l, ls_error *err)
{
    ls_dataset_view view = {0};
    const char *const *name = NULL;
    if (l->split[0]) {
        view = ls_dataset_resident(l->split[0]);
        name = ls_dataset_describe(l->split[0])->class_name;
    }
    l->rare = -1;
    if (l->classes < 2 || (!l->listed.p && !view.labels))
        return LS_OK;
    uint32_t *rows = ls_alloc_array(l->host, (size_t)l->classes, sizeof *rows);
    if (!rows)
        return ls_fail(err, LS_ENOMEM, "out of memory for the rows of %d classes", l->classes);
    for (uint32_t i = 0; i < l->rows; i++)
        rows[label_of(l, &view, i)]++;
    int least = 0;
    for (int k = 0; k < l->classes; k++) {
        least = rows[k] < rows[least] ? k : least;
        l->most_rows = rows[k] > l->most_rows ? rows[k] : l->most_rows;
    }
    l->rare_rows = rows[least];
    l->rare_name = l->listed.p ? l->listed.classes.name[least] : name ? name[least] : NULL;
    if (rows[least] > 0 && 5.0 * rows[least] * l->classes < 2.0 * l->rows)
        l->rare = least;
    ls_free(l->host, rows);
    return LS_OK;
}

/* Fails if each row is a class of its own, as with an id as the target. */
static int check_classes(const ls_inspection *l, ls_error *err)
{
    if (l->most_rows != 1)
        return LS_OK;
    return ls_fail(
        err, LS_EDATA,
        "%.300s: expected classes with several rows each, found another class in each of "
        "the %u rows%s%.60s%s",
        l->path, (unsigned)l->rows, l->target ? "; \"" : "", l->target ? l->target : "",
        l->target ? "\" is perhaps an id; name the column that is to be learnt: --target"
                  : "; name the data of which a class has several");
}

/* ---- entry points ---------------------------------------------------------------------------- */

const char *ls_inspect_forms(const ls_inspection *l)
{
    if (l->separator && !ls_separator_of(l->separator))
        return "--separator: expected \",\", \";\", tab, bar or space";
    if (l->decimal && strcmp(l->decimal, ",") != 0 && strcmp(l->decimal, ".") != 0)
        return "--decimal: expected \",\" or \".\"";
    if (l->encoding && strcmp(l->encoding, "latin-1") != 0 && strcmp(l->encoding, "utf-8") != 0)
        return "--encoding: expected latin-1 or utf-8";
    return NULL;
}

/* Fails if there is nothing in the rows by which they could be told apart. */
static int check_rows(const ls_inspection *l, ls_error *err)
{
    if (l->rows < 2 || !ls_dataset_rows_are_equal(l->split[0]))
        return LS_OK;
    return ls_fail(err, LS_EDATA,
                   "%.300s: expected rows that differ, found %u equal ones, so there is nothing "
                   "to learn from them%s",
                   l->path, (unsigned)l->rows,
                   l->kind->form == LS_DATA_TABLE ? "" : "; check how they were saved");
}

/* Opens and describes data whose kind is known, if it is not a folder of pictures. */
static int look_at_rows(ls_inspection *l, ls_error *err)
{
    int status = LS_OK;
    if (l->kind->form == LS_DATA_TABLE)
        status = look_at_table(l, err);
    else if (!l->known)
        status = look_at_arrays(l, err);
    else if (!l->split[0])
        status = open_data(l, l->host, err);
    if (status)
        return status;
    take_shape(l);
    measure(l, l->split[0]);
    l->each = l->kind->form != LS_DATA_TABLE && scales_each(l);
    if (l->each) { /* floats near a large offset are equal before they are scaled */
        l->silent = *l->host;
        l->silent.log = NULL;
        status = open_data(l, &l->silent, err);
        l->table = status == LS_OK ? ls_dataset_describe(l->split[0]) : NULL;
    }
    if (status == LS_OK)
        status = check_rows(l, err);
    if (status == LS_OK)
        status = ls_curve_measure(&l->curve, l->split[0], l->host, err);
    if (status == LS_OK && l->each && l->height * l->width == 1)
        status = find_constant_columns(l, err);
    return status;
}

int ls_inspect(ls_inspection *l, ls_error *err)
{
    l->drop = cJSON_CreateArray();
    ls_buffer_init(&l->left_out_why, l->host);
    int status = find_kind(l, err);
    if (status == LS_OK && l->kind->form == LS_DATA_FOLDER && !is_given(l, "name"))
        status = look_for_known(l, err);
    if (status == LS_OK)
        status = check_given(l, err);
    if (status)
        return status;
    l->known = l->kind->form == LS_DATA_PUBLIC;
    status = l->kind->form == LS_DATA_FOLDER ? look_at_folder(l, err) : look_at_rows(l, err);
    if (status == LS_OK)
        status = find_rare(l, err);
    if (status == LS_OK)
        status = check_classes(l, err);
    l->validation = is_given(l, "validation") ? l->given.keys.validation : l->test_rows ? 0 : 0.2;
    return status;
}

void ls_inspect_put_size(ls_json_writer *w, const ls_inspection *l)
{
    const ls_prep_resize *r = &l->resize;
    if (l->pictures) {
        ls_json_put_string(w, "pictures", l->pictures);
    } else if (!r->height) {
        ls_json_put_int(w, "image_size", l->height);
    } else {
        ls_prep_write_resize(w, r);
        if (r->height != l->height || r->width != l->width)
            ls_prep_write_sides(w, "crop", l->height, l->width == l->height ? 0 : l->width);
    }
}

void ls_inspect_end(ls_inspection *l)
{
    close_data(l);
    if (l->listed.p)
        ls_folder_fini(&l->listed);
    cJSON_Delete(l->drop);
    cJSON_Delete(l->target_name);
    ls_buffer_fini(&l->left_out_why);
}
