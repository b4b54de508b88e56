/* SPDX-License-Identifier: MIT */
/* trainer init PATH: inspects the user's data, describes them, and writes a config that trains on
 * them. */
#include "base/error.h"
#include "base/host.h"
#include "base/plain_file.h"
#include "cli/cli.h"
#include "cli/init_data.h"
#include "cli/init_from.h"
#include "config/given.h"
#include "data/inspect.h"
#include "store/durable.h"
#include "json/json.h"
#include "json/writer.h"

#include <math.h>
#include <string.h>
#include <sys/stat.h>

/* The value of data.clip that init writes for tables and columns of arrays: standardised numbers
 * are limited to this many standard deviations. A value further from the mean is nearly always a
 * typing error. The limit is needed because such a value by itself decides the prediction of its
 * row, and changes all weights in training. */
enum { CLIP = 10 };

/* Limits of the keys whose values init computes. */
enum { MOST_CROP = 64 };
#define LARGEST 1e6
#define SMALLEST_STD 2e-6 /* above 1e-6 also as a float */

enum { MOST_CONFIG = 1 << 22 }; /* size in bytes from which on a file is taken for no config */

enum {
    MOST_OLD = 99,                 /* largest number of copies of configs that were replaced */
    OLD_BYTES = LS_PATH_BYTES + 16 /* size of the path of such a copy */
};

/* A config that is to be replaced, with a '\0' after it. */
typedef struct former {
    char *text; /* NULL: there is none */
    size_t length;
} former;

static const char help[] =
    "usage: {} init PATH [options]\n"
    "\n"
    "Looks at a table (.csv), a folder with a sub-folder of pictures for each class, arrays\n"
    "(x.npy with y.npy beside it, their folder, an .npz or .safetensors file), or the folder\n"
    "of the files of MNIST, Fashion-MNIST, EMNIST, CIFAR-10 or CIFAR-100, describes the data,\n"
    "and writes a config that trains on them: network, minibatch, standardisation, schedule,\n"
    "and rows held out for validation. `{} CONFIG` trains; every key may be changed.\n"
    "\n"
    "  --target COLUMN  the column of a table that is to be learnt (default: a column that is\n"
    "                   called target, label, class, y, species or diagnosis, else the last)\n"
    "  --decimal MARK   decimal mark of a table, \",\" or \".\", if a column can be read both\n"
    "                   ways\n"
    "  --separator NAME separator of a table's fields, if several are possible: \",\", \";\", "
    "tab,\n"
    "                   bar or space\n"
    "  --encoding NAME  encoding of a table that is not UTF-8: latin-1\n"
    "  --set KEY=VALUE  sets any key of the config that is written: --set epochs=20. The data\n"
    "                   are looked at with the keys of data: --set data.labels=values\n"
    "  --from FILE      begins with a network that was trained elsewhere: an .onnx file, or the\n"
    "                   .safetensors file of a run. Its last layer is replaced by one for the\n"
    "                   classes of the data, and trained alone in the first epochs\n"
    "  --to FILE        writes the config to FILE and the description of the data to stdout;\n"
    "                   without --to, the config goes to stdout and the description to stderr.\n"
    "                   An earlier config is replaced, and kept as FILE.old if it differs;\n"
    "                   if there is another FILE.old, as FILE.old2, and so on\n"
    "  --train          trains with the config at once, as `{} FILE` does; needs --to\n"
    "  --help           this text\n";

/* ---- the network ----------------------------------------------------------------------------- */

static void begin_layer(ls_json_writer *w, const char *type)
{
    ls_json_open_object(w, NULL);
    ls_json_put_string(w, "type", type);
}

static void put_layer(ls_json_writer *w, const char *type, const char *key, int value)
{
    begin_layer(w, type);
    if (key)
        ls_json_put_int(w, key, value);
    ls_json_close(w);
}

/* Returns the dropout rate for a training set of `rows` rows. Without dropout a network overfits a
 * small set. */
static double dropout_for(uint32_t rows)
{
    return rows < 2000 ? 0.5 : rows < 20000 ? 0.2 : 0;
}

static void put_dropout(ls_json_writer *w, double p)
{
    if (p == 0)
        return;
    begin_layer(w, "dropout");
    ls_json_put_double(w, "p", p);
    ls_json_close(w);
}

/* How a network of dense layers is built and trained. */
typedef struct dense_plan {
    int hidden[2]; /* width of each hidden layer; 0: there is no such layer */
    double dropout, lr, weight_decay;
    double steps; /* number of steps of the whole training */
    uint32_t batch;
} dense_plan;

/* Returns the number of training rows, without those that are held out. */
static uint32_t training_rows(const ls_inspection *l)
{
    return l->rows - (uint32_t)(l->rows * l->validation);
}

/* Returns whether values depend on the rows along a curve: it removes much of the squared errors of
 * a linear model (ls_curve_measure). Few rows may seem to do so by chance. */
static bool is_curved(const ls_inspection *l)
{
    return l->curve >= (l->rows < 100 ? 0.5 : 0.25);
}

/* Chooses the plan by the bits of the targets: at most log2(classes) for each row; a value counts
 * as one bit, because some of its digits are noise. With few bits a small network with much dropout
 * generalises best, unless values depend on the rows along a curve, which dropout blurs: then there
 * is little of it, or none if a row has few numbers and cannot be recognised by them. With more
 * bits, two layers also learn functions that are far from linear, and need less dropout. */
static dense_plan plan_for(const ls_inspection *l)
{
    const uint32_t rows = training_rows(l);
    const double bits = rows * (l->classes > 2 ? log2(l->classes) : 1);
    dense_plan p = {.hidden = {64}, .lr = 0.01, .steps = 1000, .batch = 32};
    p.dropout = dropout_for(l->rows);
    p.weight_decay = rows < 2000 ? 0.3 : 0.01;
    if (bits < 5000 && is_curved(l)) {
        const bool dense = rows >= 200 * (uint32_t)(l->channels * l->height * l->width);
        p.hidden[0] = 128;
        p.hidden[1] = 64;
        p.dropout = dense ? 0 : 0.1;
        p.weight_decay = dense ? 0.1 : 0.3;
        p.steps = 3000;
    } else if (bits >= 2000) {
        p.hidden[0] = 128;
        p.hidden[1] = bits < 5000 ? 64 : 128;
        p.dropout = bits < 5000 ? 0.2 : bits < 100000 ? 0.1 : 0;
        p.lr = 0.003;
        p.weight_decay = 0.1;
        p.steps = bits < 5000 ? 3000 : 8000;
        p.batch = rows < 5000 ? 32 : rows < 20000 ? 64 : 256;
    }
    return p;
}

/* Writes a network with one or two hidden layers. The last layer also reads the input directly, so
 * that the network learns linear relations as fast as a linear model does. */
static void put_dense_layers(ls_json_writer *w, const ls_inspection *l)
{
    const dense_plan plan = plan_for(l);
    if (l->height * l->width > 1)
        put_layer(w, "flatten", NULL, 0);
    for (int i = 0; i < 2 && plan.hidden[i] > 0; i++) {
        begin_layer(w, "dense");
        ls_json_put_string(w, "name", i == 0 ? "hidden" : "hidden2");
        ls_json_put_int(w, "out", plan.hidden[i]);
        ls_json_close(w);
        put_layer(w, "relu", NULL, 0);
        put_dropout(w, plan.dropout);
    }
    if (l->height * l->width == 1) {
        begin_layer(w, "concat");
        ls_json_put_string(w, "with", "input");
        ls_json_close(w);
    }
    put_layer(w, "dense", NULL, 0);
}

static void put_convolution(ls_json_writer *w, int out)
{
    begin_layer(w, "conv2d");
    ls_json_put_int(w, "out", out);
    ls_json_put_int(w, "kernel", 3);
    ls_json_put_int(w, "padding", 1);
    ls_json_close(w);
    put_layer(w, "batch_norm", NULL, 0);
    put_layer(w, "relu", NULL, 0);
}

/* Writes a network of convolutions. A side of 12 and more is halved at least twice, and what is
 * left is averaged. A smaller side is halved once: what is left of it is not averaged, because a
 * mean over so few convolutions would not tell where in the image something is. */
static void put_convolutions(ls_json_writer *w, const ls_inspection *l)
{
    int side = l->height < l->width ? l->height : l->width, out = 32;
    const bool small = side < 12;
    if (small)
        put_convolution(w, 32);
    for (; side >= 6 && out <= 128; side /= 2, out *= 2) {
        put_convolution(w, out);
        put_layer(w, "max_pool", "kernel", 2);
    }
    if (small) {
        put_layer(w, "flatten", NULL, 0);
        put_dropout(w, dropout_for(l->rows));
    } else
        put_layer(w, "global_avg_pool", NULL, 0);
    put_layer(w, "dense", NULL, 0);
}

/* ---- the config ------------------------------------------------------------------------------ */

/* Writes data.drop: the names of the columns as one text, or as an array if a name contains a
 * comma. */
static void put_drop(ls_json_writer *w, const ls_inspection *l)
{
    ls_buffer text;
    const cJSON *name;
    if (cJSON_GetArraySize(l->drop) == 0)
        return;
    if (l->commas) {
        ls_json_put_node(w, "drop", l->drop);
        return;
    }
    ls_buffer_init(&text, l->host);
    cJSON_ArrayForEach(name, l->drop)
    {
        ls_buffer_format(&text, "%s%s", text.length ? "," : "", name->valuestring);
    }
    ls_json_put_string(w, "drop", text.text);
    ls_buffer_fini(&text);
}

static void put_table(ls_json_writer *w, const ls_inspection *l)
{
    ls_json_put_string(w, "path", l->path);
    ls_json_put_string(w, "target", l->target);
    ls_json_put_string(w, "labels", l->values ? "values" : "classes");
    put_drop(w, l);
    if (l->decimal)
        ls_json_put_string(w, "decimal", l->decimal);
    if (l->separator)
        ls_json_put_string(w, "separator", l->separator);
    if (l->encoding)
        ls_json_put_string(w, "encoding", l->encoding);
    ls_json_put_bool(w, "standardize", true);
    ls_json_put_int(w, "clip", CLIP);
    if (l->targets)
        ls_json_put_bool(w, "standardize_target", true);
    if (l->fills)
        ls_json_put_string(w, "missing", "mean");
}

static void put_arrays(ls_json_writer *w, const ls_inspection *l)
{
    if (!l->x[0] || l->folder[0])
        ls_json_put_string(w, "path", l->x[0] ? l->folder : l->path);
    if (l->x[0])
        ls_json_put_string(w, "x", l->x);
    if (l->y[0])
        ls_json_put_string(w, "y", l->y);
    if (l->test_x[0])
        ls_json_put_string(w, "test_x", l->test_x);
    if (l->test_y[0])
        ls_json_put_string(w, "test_y", l->test_y);
    if (l->last)
        ls_json_put_string(w, "layout", "channels_last");
    if (l->labels != LS_LABELS_AUTO)
        ls_json_put_string(w, "labels", l->labels == LS_LABELS_VALUES ? "values" : "classes");
    if (l->each)
        ls_json_put_bool(w, "standardize", true);
    if (l->each && l->height * l->width == 1)
        ls_json_put_int(w, "clip", CLIP);
    if (l->fills)
        ls_json_put_string(w, "missing", "mean");
    if (l->targets == 1)
        ls_json_put_bool(w, "standardize_target", true);
}

static void put_data(ls_json_writer *w, const ls_inspection *l)
{
    ls_json_open_object(w, "data");
    ls_json_put_string(w, "name", l->kind->name);
    if (l->kind->form == LS_DATA_TABLE)
        put_table(w, l);
    else if (l->kind->form != LS_DATA_FOLDER)
        put_arrays(w, l);
    else {
        ls_json_put_string(w, "path", l->path);
        ls_inspect_put_size(w, l);
        ls_json_put_int(w, "channels", l->channels);
    }
    if (l->kind->form != LS_DATA_TABLE && !l->each && !l->pictures) {
        ls_json_put_float(w, "mean", (float)fmin(fmax(l->mean, -LARGEST), LARGEST));
        ls_json_put_float(w, "std", (float)fmin(fmax(l->deviation, SMALLEST_STD), LARGEST));
    }
    if (l->validation > 0)
        ls_json_put_double(w, "validation", l->validation);
    ls_json_close(w);
}

/* Writes minibatch, epochs, optimizer and schedule. A small set is trained for many epochs, a large
 * one for a few thousand steps. */
static void put_schedule(ls_json_writer *w, const ls_inspection *l, bool images)
{
    const uint32_t rows = training_rows(l);
    dense_plan p = plan_for(l);
    if (images)
        p = (dense_plan){.lr = 0.003,
                         .weight_decay = 0.05,
                         .steps = 1000,
                         .batch = rows < 2000    ? 32
                                  : rows < 20000 ? 64
                                                 : 256};
    const double epochs = floor(p.steps / ceil(rows / (double)p.batch) + 0.5);
    ls_json_put_int(w, "batch_size", p.batch);
    ls_json_put_int(w, "epochs", (int)fmin(images ? 40 : 200, fmax(10, epochs)));
    ls_json_open_object(w, "optimizer");
    ls_json_put_string(w, "name", "adamw");
    ls_json_put_double(w, "lr", p.lr);
    ls_json_put_double(w, "weight_decay", p.weight_decay);
    ls_json_close(w);
    ls_json_put_string(w, "schedule", "cosine");
}

/* Writes the name of the run, which is part of its directory: "data/my rows.csv" becomes
 * "my_rows". */
static void put_name(ls_json_writer *w, const char *path)
{
    char name[40];
    size_t end = strlen(path);
    while (end > 1 && path[end - 1] == '/')
        end--;
    size_t begin = end;
    while (begin > 0 && path[begin - 1] != '/')
        begin--;
    snprintf(name, sizeof name, "%.*s", (int)(end - begin < 39 ? end - begin : 39), path + begin);
    name[strcspn(name, ".")] = '\0';
    for (char *c = name; *c; c++)
        *c = *c == ' ' || (unsigned char)*c > 126 ? '_' : *c;
    ls_json_put_string(w, "name", name[0] ? name : "run");
}

/* Writes how training images are changed. Images in colour are shifted and mirrored. Grey pictures
 * of a folder are shifted if there are few of them, but not mirrored: they may show letters. A
 * shift is a sixteenth of the side, so very small pictures are not shifted. */
static void put_augmentation(ls_json_writer *w, const ls_inspection *l)
{
    const bool folder = l->kind->form == LS_DATA_FOLDER;
    const int side = l->height < l->width ? l->height : l->width;
    const int crop = !folder ? 4 : side / 16 < MOST_CROP ? side / 16 : MOST_CROP;
    const bool colours = folder ? !l->grey : l->known && l->channels == 3;
    if (!colours && !(folder && crop > 0 && l->rows < FEW_PICTURES))
        return;
    ls_json_open_object(w, "augment");
    if (crop > 0)
        ls_json_put_int(w, "crop", crop);
    if (colours)
        ls_json_put_bool(w, "flip", true);
    ls_json_close(w);
}

static int put_config(ls_json_writer *w, const ls_inspection *l, const init_from *from,
                      ls_error *err)
{
    const bool images = l->height >= 6 && l->width >= 6;
    int status = LS_OK;
    ls_json_open_object(w, NULL);
    put_name(w, l->path);
    put_data(w, l);
    if (from->path) {
        put_augmentation(w, l);
        status = init_from_put(w, from, training_rows(l), err);
        ls_json_close(w);
        return status;
    }
    ls_json_open_object(w, "model");
    ls_json_open_array(w, "layers");
    if (images)
        put_convolutions(w, l);
    else
        put_dense_layers(w, l);
    ls_json_close(w);
    ls_json_close(w);
    put_augmentation(w, l);
    put_schedule(w, l, images);
    ls_json_close(w);
    return status;
}

/* ---- the command ----------------------------------------------------------------------------- */

/* Prints an error. If a key of the config would help, adds the option of `trainer init` that does
 * the same, because there is no config yet. */
static int fail_look(int status, const ls_error *err)
{
    const char *option = err->reason == LS_REASON_DECIMAL     ? "decimal"
                         : err->reason == LS_REASON_SEPARATOR ? "separator"
                         : err->reason == LS_REASON_ENCODING  ? "encoding"
                                                              : NULL;
    char text[LS_ERROR_TEXT + 64];
    if (!option)
        return cli_fail_files(status, err->text);
    snprintf(text, sizeof text, "%s (with init: --%s)", err->text, option);
    return cli_fail_files(status, text);
}

/* Checks that a config is valid with the assignments of --set. */
static int check_config(const char *text, const cli_list *set, const ls_host *host, ls_error *err)
{
    char *resolved = NULL;
    const ls_trainer_options o = {.size = sizeof o,
                                  .config_text = text,
                                  .set = set->item,
                                  .set_count = set->count,
                                  .host = host};
    int status = ls_config_resolve(&resolved, &o, err);
    ls_text_free(resolved);
    return status;
}

/* Applies the assignments of --set to the config in `w`, and stores the result in *doc, which the
 * caller destroys, also after a failure. */
static int apply_set(ls_json **doc, ls_json_writer *w, const cli_list *set, const ls_host *host,
                     ls_error *err)
{
    size_t length;
    const char *text = ls_json_writer_text(w, &length, err);
    int status = text ? check_config(text, set, host, err) : LS_ENOMEM;
    if (status == LS_OK)
        status = ls_json_parse(doc, "the config", text, length, host, err);
    for (int i = 0; i < set->count && status == LS_OK; i++)
        status = ls_json_set(*doc, set->item[i], err);
    if (status == LS_OK && set->count) {
        ls_json_writer_reset(w);
        ls_json_put_node(w, NULL, ls_json_root(*doc));
    }
    return status;
}

static void print_how_to_train(const char *config)
{
    ls_buffer command;
    ls_buffer_init(&command, NULL);
    cli_put_command(&command, "", config, "");
    if (!command.failed)
        printf("%s: train with `%s`\n", config, command.text);
    ls_buffer_fini(&command);
}

/* Returns whether a text is a config, by its keys. */
static bool is_config(const char *text, size_t length, const ls_host *host)
{
    ls_json *doc = NULL;
    const int status = ls_json_parse(&doc, "", text, length, host, NULL);
    const cJSON *root = status ? NULL : ls_json_root(doc);
    const bool config = cJSON_GetObjectItemCaseSensitive(root, "data") ||
                        cJSON_GetObjectItemCaseSensitive(root, "model");
    ls_json_destroy(doc);
    return config;
}

/* Reads the config that is to be replaced, if there is a file at `to`: *former, which the caller
 * frees. Refuses to replace another file, for example the user's data. Errors: LS_EINVAL, those of
 * reading. */
static int find_former(former *f, const char *to, const ls_host *host, ls_error *err)
{
    struct stat st;
    void *text = NULL;
    *f = (former){NULL, 0};
    if (!to || stat(to, &st) != 0 || !S_ISREG(st.st_mode) || st.st_size == 0)
        return LS_OK;
    int status =
        ls_read_plain_file(&text, &f->length, to, "a config", LS_EINVAL, MOST_CONFIG, host, err);
    f->text = text;
    if (status == LS_OK && is_config(text, f->length, host))
        return LS_OK;
    return ls_fail(err, LS_EINVAL,
                   "--to %.300s: that file exists and is no config, so it is not replaced; name "
                   "another file, such as my.json",
                   to);
}

/* Returns whether the file `path` has the text of the config that is to be replaced. */
static bool is_copy(const former *f, const char *path, const ls_host *host)
{
    void *text = NULL;
    size_t length = 0;
    const int status =
        ls_read_plain_file(&text, &length, path, "a config", LS_EINVAL, MOST_CONFIG, host, NULL);
    const bool same = status == LS_OK && length == f->length && memcmp(text, f->text, length) == 0;
    ls_free(host, text);
    return same;
}

/* Chooses the file in which the config that is to be replaced is kept: TO.old, TO.old2, … No
 * earlier copy is replaced, because it may have other edits of the user. Stores in *there whether
 * the file is an earlier copy with the same text. Errors: LS_EINVAL. */
static int choose_old(char old[OLD_BYTES], bool *there, const former *f, const char *to,
                      const ls_host *host, ls_error *err)
{
    struct stat st;
    *there = false;
    for (int n = 1; n <= MOST_OLD; n++) {
        char number[8] = "";
        if (n > 1)
            snprintf(number, sizeof number, "%d", n);
        snprintf(old, OLD_BYTES, "%.*s.old%s", LS_PATH_BYTES - 1, to, number);
        if (lstat(old, &st) != 0)
            return LS_OK;
        *there = is_copy(f, old, host);
        if (*there)
            return LS_OK;
    }
    return ls_fail(err, LS_EINVAL,
                   "--to %.300s: would replace a config of which no copy can be kept, because the "
                   "files %.300s.old to .old%d exist; remove those that you do not need",
                   to, to, MOST_OLD);
}

/* Keeps the config that `text` is about to replace, if the two differ. */
static int keep_former(const former *f, const char *to, const char *text, const ls_host *host,
                       ls_error *err)
{
    char old[OLD_BYTES];
    bool there;
    const size_t length = strlen(text);
    if (f->length == 0 || (f->length == length + 1 && memcmp(f->text, text, length) == 0))
        return LS_OK;
    int status = choose_old(old, &there, f, to, host, err);
    if (status == LS_OK && !there)
        status = ls_write_file(old, f->text, f->length, NULL, err);
    if (status == LS_OK)
        cli_say("replaces %s; the config that it was is kept in %s", to, old);
    return status;
}

/* Writes the config for the data that was found, and prints what the data is. */
static int write_config(const ls_inspection *l, const init_from *from, const char *to,
                        const former *f, ls_error *err)
{
    ls_json_writer w;
    ls_json *doc = NULL;
    FILE *stream = to ? stdout : stderr;
    ls_json_writer_init(&w, 2, l->host);
    int code = 0, status = put_config(&w, l, from, err);
    if (status == LS_OK)
        status = apply_set(&doc, &w, &from->set, l->host, err);
    if (status == LS_OK)
        init_data_print(l, ls_json_root(doc), from->path != NULL, stream);
    if (status == LS_OK && from->path)
        init_from_print(from, ls_json_root(doc), l->classes ? l->classes : l->targets, stream);
    ls_json_destroy(doc);
    const char *text = status == LS_OK ? ls_json_writer_text(&w, NULL, err) : NULL;
    if (text)
        status = keep_former(f, to, text, l->host, err);
    if (status == LS_OK)
        code = cli_write_json("--to", to ? to : "-", &w);
    else
        ls_json_writer_fini(&w);
    return status ? cli_fail_files(status, err->text) : code;
}

static int run(ls_inspection *l, init_from *from, const cli_list *set, const char *to, bool trains,
               ls_error *err)
{
    former f;
    ls_given_data *given = NULL;
    int code = 0, status = find_former(&f, to, l->host, err);
    if (status == LS_OK)
        status = init_from_begin(from, to, set, l->host, err);
    if (status == LS_OK)
        status = ls_given_data_read(&given, l, set->item, set->count, err);
    if (status)
        code = cli_fail_files(status, err->text);
    else if ((status = ls_inspect(l, err)) != LS_OK)
        code = fail_look(status, err);
    else if ((status = init_from_fit(from, l, set, err)) != LS_OK)
        code = cli_fail_files(status, err->text);
    else
        code = write_config(l, from, to, &f, err);
    if (to && code == 0 && !trains)
        print_how_to_train(to);
    ls_inspect_end(l);
    ls_given_data_free(given);
    init_from_end(from);
    ls_free(l->host, f.text);
    return code ? code : cli_flush();
}

int cli_init(int argc, char **argv, const ls_registry *registry)
{
    ls_error err;
    cli_said said;
    cli_view view;
    const char *to = NULL;
    bool trains = false;
    cli_list set = {.count = 0};
    init_from from = {.path = NULL};
    ls_host host = {.size = sizeof host, .log = cli_view_log, .user = &view};
    ls_inspection look = {.host = &host, .pack.pictures = lockstep_pictures()};
    const cli_option options[] = {{CLI_TEXT, "target", .value = &look.target},
                                  {CLI_TEXT, "decimal", .value = &look.decimal},
                                  {CLI_TEXT, "separator", .value = &look.separator},
                                  {CLI_TEXT, "encoding", .value = &look.encoding},
                                  {CLI_LIST, "set", .list = &set, .most = CLI_SET_MAX},
                                  {CLI_TEXT, "from", .value = &from.path},
                                  {CLI_OUT, "to", .value = &to},
                                  {CLI_FLAG, "train", .flag = &trains},
                                  {CLI_HELP, "help", 'h', .text = help},
                                  {CLI_OPERAND, "path", .value = &look.path,
                                   .text = "expected a table, a folder of pictures, or arrays.",
                                   .example = "my.csv"},
                                  {0}};
    int code = cli_read_options("init", options, argc, argv);
    if (code)
        return code;
    if (trains && (!to || strcmp(to, "-") == 0))
        return cli_usage("init", "--train needs --to FILE", "");
    const char *wrong = ls_inspect_forms(&look);
    if (wrong)
        return cli_usage("init", wrong, "");
    cli_said_init(&said);
    cli_view_init(&view, false);
    view.said = &said;
    code = run(&look, &from, &set, to, trains, &err);
    if (code == 0 && trains)
        code = cli_train(to, &said, registry);
    cli_said_fini(&said);
    return code;
}
