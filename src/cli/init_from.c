/* SPDX-License-Identifier: MIT */
/* trainer init DATA --from FILE (init_from.h). */
#define _DEFAULT_SOURCE /* realpath */
#include "cli/init_from.h"

#include "base/error.h"
#include "base/plural.h"
#include "json/json.h"

#include <limits.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

enum {
    SIDE = 224,      /* height and width for a network that leaves them open */
    BATCH = 32,      /* rows of a minibatch */
    HEAD_STEPS = 32, /* number of steps for the last layer alone, and for all layers */
    ALL_STEPS = 16,
    MOST_EPOCHS = 20 /* limit of the epochs of each of the two */
};

/* ---- needs of the network -------------------------------------------------------------------- */

/* Returns whether the user has set a key of `data`. */
static bool sets(const ls_inspection *l, const char *key)
{
    return l->given.set && cJSON_GetObjectItemCaseSensitive(l->given.set, key);
}

/* Adds an assignment of a number for each channel, or of one if they are equal. */
static void add_scale(init_from *from, char text[160], const char *key, const float *number)
{
    const int channels = from->origin.input.c;
    int used = snprintf(text, 160, "%s=[", key);
    for (int c = 0; c < channels && used < 140; c++)
        used +=
            snprintf(text + used, 160 - (size_t)used, "%s%.9g", c ? "," : "", (double)number[c]);
    snprintf(text + used, 160 - (size_t)used, "]");
    from->set.item[from->set.count++] = text;
}

/* Returns whether the user has set the size of pictures. */
static bool is_sized(const ls_inspection *l)
{
    return sets(l, "pictures") || sets(l, "resize") || sets(l, "image_size");
}

/* Gives pictures the size and the channels that the network reads, unless the user has set these.
 */
static void fit_pictures(const ls_origin *o, ls_inspection *l)
{
    const bool scaled = sets(l, "mean") || sets(l, "std");
    if (!l->pictures && !sets(l, "channels") && (o->input.c == 1 || o->input.c == 3))
        l->channels = o->input.c;
    l->grey = l->channels == 1;
    if (is_sized(l))
        return;
    l->height = o->input.h;
    l->width = o->input.w;
    l->resize = o->resize;
    l->pictures = scaled || l->channels != o->input.c ? NULL : o->pictures;
}

/* Returns which keys of the data are a guess, or NULL. */
static const char *guess_of(const ls_origin *o, const ls_inspection *l)
{
    const bool sized = l->kind->form == LS_DATA_FOLDER && o->input.h == o->input.w && !is_sized(l),
               scaled = !sets(l, "mean") && !sets(l, "std");
    if (l->pictures)
        return is_sized(l) ? NULL : "data.pictures is that";
    return sized && scaled ? "data.resize, data.crop, data.mean and data.std are those"
           : sized         ? "data.resize and data.crop are those"
           : scaled        ? "data.mean and data.std are those"
                           : NULL;
}

/* Adds the assignments of the scales of bytes, unless the user has made them. */
static void add_scales(init_from *from, const ls_inspection *l)
{
    const ls_origin *o = &from->origin;
    if (!o->scales || o->input.c > 4 || l->pictures)
        return;
    if (!sets(l, "mean"))
        add_scale(from, from->text[0], "data.mean", o->mean);
    if (!sets(l, "std"))
        add_scale(from, from->text[1], "data.std", o->std);
}

/* Returns the path of the file as the config names it. The config's `model` is relative to the
 * config, which may be in another directory. */
static const char *path_in_config(init_from *from, const char *to)
{
    if (!to || !strchr(to, '/') || from->path[0] == '/')
        return from->path;
    from->absolute = realpath(from->path, NULL);
    return from->absolute ? from->absolute : from->path;
}

int init_from_begin(init_from *from, const char *to, const cli_list *set, const ls_host *host,
                    ls_error *err)
{
    return from->path ? ls_origin_read(&from->origin, from->path, path_in_config(from, to), SIDE,
                                       set->item, set->count, host, err)
                      : LS_OK;
}

/* Fails if the network reads other rows than the data have. */
static int check_rows(const init_from *from, const ls_inspection *l, ls_error *err)
{
    const ls_shape *s = &from->origin.input;
    const bool table = l->kind->form == LS_DATA_TABLE; /* a run checks its number of features */
    const bool folder = l->kind->form == LS_DATA_FOLDER;
    if (table ? s->h == 1 && s->w == 1
              : s->c == l->channels && s->h == l->height && s->w == l->width)
        return LS_OK;
    if (table)
        return ls_fail(err, LS_EUNSUPPORTED,
                       "%.300s reads images of %d×%d×%d, but %.300s is a table", from->path, s->c,
                       s->h, s->w, l->path);
    return ls_fail(err, LS_EUNSUPPORTED,
                   "%.300s reads rows of %d×%d×%d, but those of %.300s have %d×%d×%d%s", from->path,
                   s->c, s->h, s->w, l->path, l->channels, l->height, l->width,
                   !folder                  ? "; export the network for these rows"
                   : s->c == 1 || s->c == 3 ? "; leave out the keys of data that set this size"
                                            : "; pictures have 1 or 3 channels");
}

int init_from_fit(init_from *from, ls_inspection *l, const cli_list *set, ls_error *err)
{
    if (from->path && l->kind->form == LS_DATA_FOLDER)
        fit_pictures(&from->origin, l);
    if (from->path && !l->floats && l->kind->form != LS_DATA_TABLE)
        add_scales(from, l);
    from->guessed = from->origin.guessed ? guess_of(&from->origin, l) : NULL;
    for (int i = 0; i < set->count; i++)
        from->set.item[from->set.count++] = set->item[i];
    return from->path ? check_rows(from, l, err) : LS_OK;
}

/* ---- the config ------------------------------------------------------------------------------ */

/* Returns the number of epochs with about `steps` steps. */
static int epochs_for(int steps, uint32_t rows)
{
    const double each = ceil(rows / (double)BATCH);
    return (int)fmin(MOST_EPOCHS, fmax(2, ceil(steps / fmax(each, 1))));
}

/* Writes the keys that name parameters. */
static void put_rates(ls_json_writer *w, const ls_origin *o, int head_epochs)
{
    char pattern[80];
    snprintf(pattern, sizeof pattern, "!%s.*", o->head);
    ls_json_open_array(w, "freeze");
    ls_json_put_string(w, NULL, "*");
    ls_json_put_string(w, NULL, pattern);
    ls_json_close(w);
    ls_json_put_int(w, "freeze_epochs", head_epochs);
    ls_json_open_object(w, "lr_factors");
    ls_json_put_double(w, "*", 0.1);
    ls_json_put_double(w, pattern + 1, 1);
    ls_json_close(w);
}

int init_from_put(ls_json_writer *w, const init_from *from, uint32_t rows, ls_error *err)
{
    const ls_origin *o = &from->origin;
    const int head = epochs_for(HEAD_STEPS, rows);
    ls_json *model;
    int status = ls_json_parse(&model, from->path, o->model, strlen(o->model), o->host, err);
    if (status)
        return status;
    ls_json_put_node(w, "model", ls_json_root(model));
    ls_json_destroy(model);
    if (o->weights) {
        ls_json_open_object(w, "init");
        ls_json_put_string(w, "weights", o->weights);
        ls_json_put_bool(w, "partial", true);
        ls_json_close(w);
    }
    put_rates(w, o, head);
    ls_json_put_int(w, "batch_size", BATCH);
    ls_json_put_int(w, "epochs", head + epochs_for(ALL_STEPS, rows));
    ls_json_open_object(w, "optimizer");
    ls_json_put_string(w, "name", "adamw");
    ls_json_put_double(w, "lr", 0.003);
    ls_json_put_double(w, "weight_decay", 0.01);
    ls_json_close(w);
    ls_json_put_string(w, "schedule", "cosine");
    ls_json_put_string(w, "monitor", "loss");
    ls_json_open_object(w, "checkpoint");
    ls_json_put_bool(w, "best", true);
    ls_json_close(w);
    return LS_OK;
}

/* ---- printing -------------------------------------------------------------------------------- */

static int number_of(const cJSON *config, const char *key)
{
    const cJSON *value = cJSON_GetObjectItemCaseSensitive(config, key);
    return cJSON_IsNumber(value) ? (int)value->valuedouble : 0;
}

void init_from_print(const init_from *from, const cJSON *config, int outputs, FILE *stream)
{
    const ls_origin *o = &from->origin;
    const int held = number_of(config, "freeze_epochs"), epochs = number_of(config, "epochs");
    fprintf(stream, "%s: a network of %d %s\n", from->path, o->layers,
            ls_plural((uint64_t)o->layers, "layer", "layers"));
    fprintf(stream,
            "  %zu weights are taken over; the %zu of the last layer, %s, are not: it gave %d "
            "%s, and begins anew with %d\n",
            o->taken, o->left, o->head, o->outputs,
            ls_plural((uint64_t)o->outputs, "value", "values"), outputs);
    fputs(o->norms
              ? "  it has batch norms, whose running statistics are taken over too\n"
              : "  it has no batch norm, or batch norms that were folded into convolutions; so "
                "it has no running statistics\n",
          stream);
    if (o->open)
        fprintf(stream,
                "  the file leaves the size of its rows open: %d×%d×%d is taken (model.input); "
                "another: --set model.input=[%d,HEIGHT,WIDTH]\n",
                o->input.c, o->input.h, o->input.w, o->input.c);
    if (held > 0)
        fprintf(stream,
                "  of %d epochs the first %d train the last layer alone (freeze, "
                "freeze_epochs), the others all layers (lr_factors)\n",
                epochs, held);
    if (o->licence[0])
        fprintf(stream, "  licence of the weights: %s (kept in the model's file)\n", o->licence);
    if (from->guessed)
        fprintf(stream,
                "  the file does not say how its pictures were prepared: %s of networks for "
                "ImageNet\n",
                from->guessed);
    fputs("  the checkpoint of the best evaluation is kept (checkpoint.best, eval RUN --best)\n",
          stream);
}

void init_from_end(init_from *from)
{
    ls_origin_fini(&from->origin);
    free(from->absolute);
}
