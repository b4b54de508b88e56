/* Inspects data (inspect.h). Each kind of data is opened in the same way as for
 * training, so that the description shows the rows as training will get them. */
#include "data/inspect.h"

#include "base/error.h"
#include "base/host.h"
#include "data/kinds.h"
#include "formats/arrays.h"

#include <fcntl.h>
#include <math.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

enum {
    /* a column of numbers is taken as classes only if it has at most this many different numbers */
    MOST_CLASSES = 20,
    VALUES = 1 << 22, /* largest number of values from which mean and deviation are computed */
    /* largest number of pictures that are decoded to find out whether they have colours */
    PICTURES = 24
};

static bool is_file(const char *folder, const char *name)
{
    char path[4400];
    struct stat st;
    snprintf(path, sizeof path, "%s%s%s", folder, folder[0] ? "/" : "", name);
    return stat(path, &st) == 0 && !S_ISDIR(st.st_mode);
}

/* ---- the kind of data ------------------------------------------------------------------------ */

/* l->path is a file of rows, such as "x.npy" or "X_train.npy". Finds the file of its targets in the
 * same folder. */
static int find_pair(ls_inspection *l, ls_error *err)
{
    const char *slash = strrchr(l->path, '/'), *name = slash ? slash + 1 : l->path;
    snprintf(l->folder, sizeof l->folder, "%.*s", slash ? (int)(slash - l->path) : 0, l->path);
    snprintf(l->x, sizeof l->x, "%.250s", name);
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
                   "files x.npy and y.npy",
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

static int find_kind(ls_inspection *l, ls_error *err)
{
    struct stat st;
    if (stat(l->path, &st) != 0)
        return ls_fail(err, LS_ENOENT,
                       "%.300s: no such file or directory; expected a table (.csv), a folder with "
                       "a sub-folder of pictures for each class, or arrays (x.npy with y.npy)",
                       l->path);
    if (!S_ISDIR(st.st_mode) && is_of_several(l->path))
        return ls_fail(err, LS_EINVAL,
                       "%.300s: one of the files of a data set; name the directory that has all of "
                       "them",
                       l->path);
    l->kind = ls_path_ends_with(l->path, ".safetensors") ? &ls_dataset_safetensors.about
              : ls_path_is_npz(l->path)                  ? &ls_dataset_npy.about
                                                         : &ls_dataset_csv.about;
    if (S_ISDIR(st.st_mode) && is_file(l->path, "x.npy")) {
        l->kind = &ls_dataset_npy.about;
        snprintf(l->folder, sizeof l->folder, "%.4000s", l->path);
        strcpy(l->x, "x.npy");
        strcpy(l->y, "y.npy");
    } else if (S_ISDIR(st.st_mode)) {
        l->kind = &ls_dataset_folder.about;
    } else if (ls_path_ends_with(l->path, ".npy")) {
        l->kind = &ls_dataset_npy.about;
        int status = find_pair(l, err);
        if (status)
            return status;
    }
    if (l->x[0] && is_file(l->folder, "test_x.npy") && is_file(l->folder, "test_y.npy")) {
        strcpy(l->test_x, "test_x.npy");
        strcpy(l->test_y, "test_y.npy");
    }
    const char *option = l->target      ? "--target"
                         : l->decimal   ? "--decimal"
                         : l->separator ? "--separator"
                         : l->encoding  ? "--encoding"
                                        : NULL;
    return option && l->kind->form != LS_DATA_TABLE
               ? ls_fail(err, LS_EINVAL, "%s: is about a table; %.300s is none", option, l->path)
               : LS_OK;
}

/* ---- tables ---------------------------------------------------------------------------------- */

static void close_data(ls_inspection *l)
{
    for (int s = 0; s < 2; s++) {
        ls_dataset_close(l->split[s]);
        l->split[s] = NULL;
    }
}

static int open_data(ls_inspection *l, const ls_host *host, ls_error *err)
{
    const ls_dataset_spec spec = {.name = l->kind->name,
                                  .path = l->x[0] ? (l->folder[0] ? l->folder : NULL) : l->path,
                                  .keys = {.x = l->x[0] ? l->x : NULL,
                                           .y = l->y[0] ? l->y : NULL,
                                           .test_x = l->test_x[0] ? l->test_x : NULL,
                                           .test_y = l->test_y[0] ? l->test_y : NULL,
                                           .target = {.text = l->target},
                                           .drop = {.list = l->drop},
                                           .separator = l->separator,
                                           .decimal = !l->decimal            ? LS_DECIMAL_AUTO
                                                      : l->decimal[0] == ',' ? LS_DECIMAL_COMMA
                                                                             : LS_DECIMAL_POINT,
                                           .latin1 = l->encoding && l->encoding[0] == 'l',
                                           .layout = l->last ? LS_CHANNELS_LAST : LS_CHANNELS_FIRST,
                                           .labels = l->values ? LS_LABELS_VALUES
                                                     : l->kind->form == LS_DATA_TABLE
                                                         ? LS_LABELS_CLASSES
                                                         : LS_LABELS_AUTO,
                                           .missing = LS_MISSING_MEAN,
                                           .standardize = l->kind->form == LS_DATA_TABLE,
                                           .lenient = 1}};
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
    if (c->use == LS_COLUMN_DROPPED && c->looks_like)
        return "has texts that are neither names of something nor numbers, such as ";
    if (c->use == LS_COLUMN_DROPPED) /* a column without a name, which is always left out */
        return c->levels > 0 ? "has more than 1000 different texts" : NULL;
    if (c->counts)
        return "counts the rows";
    if (c->use == LS_COLUMN_LEVELS && present >= 20 && 2 * (uint32_t)c->levels > present)
        return "has nearly as many different texts as rows";
    return NULL;
}

/* Adds the columns that cannot help to l->drop, and the reasons to l->why. Returns the number of
 * these columns. */
static int drop_useless(ls_inspection *l, const ls_dataset_info *info)
{
    int dropped = 0;
    for (int i = 0; i < info->columns; i++) {
        const ls_column_summary *c = &info->column[i];
        const char *why = useless(c, info->rows);
        l->fills |= c->missing > 0 && !why;
        if (!why && c->use == LS_COLUMN_NUMBER && c->step != 0 && info->columns > 2)
            ls_buffer_format(&l->why,
                             "  %.60s goes %s evenly from row to row, as a time or an id does "
                             "(data.drop leaves it out)\n",
                             c->name, c->step > 0 ? "up" : "down");
        if (!why || c->use == LS_COLUMN_CLASS || c->use == LS_COLUMN_VALUE)
            continue;
        cJSON_AddItemToArray(l->drop, cJSON_CreateString(c->name));
        l->commas |= strchr(c->name, ',') != NULL;
        ls_buffer_format(&l->why, "  %.60s is left out (data.drop): it %s%s\n", c->name, why,
                         c->looks_like ? c->looks_like : "");
        dropped++;
    }
    return dropped;
}

static int look_at_table(ls_inspection *l, ls_error *err)
{
    int status = open_data(l, l->host, err);
    if (status && err->reason == LS_REASON_CLASSES) {
        l->values = true;
        status = open_data(l, l->host, err);
    }
    if (status)
        return status;
    const ls_dataset_info *info = ls_dataset_describe(l->split[0]);
    const bool values = are_values(info);
    const int dropped = drop_useless(l, info);
    l->values_why = values;
    l->values |= values;
    return values || dropped ? open_data(l, l->host, err) : LS_OK;
}

/* ---- arrays ---------------------------------------------------------------------------------- */

/* Returns whether the last dimension is probably the channels: it is 1, 3 or 4, and the two others
 * are larger. */
static bool may_be_last(const ls_dataset_info *info)
{
    return (info->width == 1 || info->width == 3 || info->width == 4) && info->height > 4 &&
           info->channels > 4;
}

static int look_at_arrays(ls_inspection *l, ls_error *err)
{
    l->silent = *l->host;
    l->silent.log = NULL;
    int status = open_data(l, &l->silent, err);
    if (status)
        return status;
    l->last = may_be_last(ls_dataset_describe(l->split[0]));
    return open_data(l, l->host, err);
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
    l->floats = info->dtype == LS_ROW_F32;
}

/* ---- pictures -------------------------------------------------------------------------------- */

/* Decodes up to PICTURES pictures, spread over the list, until one of them has colours. */
static int look_for_colours(ls_inspection *l, ls_error *err)
{
    enum { SIDE = 16, ALL = SIDE * SIDE };
    uint8_t pixel[3 * ALL];
    ls_image_memory kept = {0};
    const ls_folder_listing *list = &l->listed.split[0];
    const ls_pictures *pictures;
    int status = ls_pictures_find(&pictures, l->pack.pictures, err);
    if (status)
        return status;
    l->grey = true;
    size_t broken = 0;
    for (size_t i = 0; i < PICTURES && i < list->count && l->grey; i++) {
        const size_t at = list->count <= PICTURES ? i : i * list->count / PICTURES;
        status = pictures->fit(pixel, 3, SIDE, SIDE, AT_FDCWD, list->entry[at].path, &kept, l->host,
                               err);
        if (status)
            broken++; /* a run reports such pictures */
        for (int k = 0; status == LS_OK && k < ALL; k++)
            l->grey = l->grey && pixel[k] == pixel[k + ALL] && pixel[k] == pixel[k + 2 * ALL];
    }
    pictures->memory_free(&kept, l->host);
    return broken < PICTURES && broken < list->count ? LS_OK : status;
}

static int look_at_folder(ls_inspection *l, ls_error *err)
{
    l->pack.folder = l->path;
    l->listed = (ls_folder){.p = &l->pack, .host = l->host, .err = err};
    int status = ls_folder_list(&l->listed);
    if (status == LS_OK)
        status = look_for_colours(l, err);
    l->rows = (uint32_t)l->listed.split[0].count;
    l->test_rows = (uint32_t)l->listed.split[1].count;
    l->classes = (int)l->listed.classes.count;
    l->channels = l->grey ? 1 : 3;
    l->height = l->width = 64;
    l->mean = 0.5;
    l->deviation = 0.25;
    return status;
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

int ls_inspect(ls_inspection *l, ls_error *err)
{
    l->drop = cJSON_CreateArray();
    ls_buffer_init(&l->why, l->host);
    int status = find_kind(l, err);
    if (status)
        return status;
    const bool directory = l->kind->form == LS_DATA_FOLDER;
    if (directory)
        status = look_for_known(l, err);
    if (status)
        return status;
    if (l->kind->form == LS_DATA_FOLDER)
        return look_at_folder(l, err);
    l->known = directory;
    if (!directory)
        status = l->kind->form == LS_DATA_TABLE ? look_at_table(l, err) : look_at_arrays(l, err);
    if (status)
        return status;
    take_shape(l);
    measure(l, l->split[0]);
    if (!l->target && l->kind->form == LS_DATA_TABLE)
        l->target = target_of(ls_dataset_describe(l->split[0]))->name;
    return LS_OK;
}

void ls_inspect_end(ls_inspection *l)
{
    close_data(l);
    if (l->listed.p)
        ls_folder_fini(&l->listed);
    cJSON_Delete(l->drop);
    ls_buffer_fini(&l->why);
}
