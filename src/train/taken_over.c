/* SPDX-License-Identifier: MIT */
/* Takes over the weights of a file: by the names of columns, levels and classes, if the file has
 * them (taken_over.h). */
#include "train/taken_over.h"

#include "base/buffer.h"
#include "base/error.h"
#include "base/host.h"
#include "config/card.h"
#include "data/own_rows.h"
#include "nn/safetensors.h"
#include "train/moved.h"

#include <math.h>
#include <string.h>

enum { NAMED = 5 }; /* number of names in a message */

/* A list of names for a message. */
typedef struct names {
    ls_buffer text;
    int count;
} names;

/* Facts about the file's model and the run's rows. */
typedef struct matching {
    const char *path;
    const ls_tensor_file *file; /* the file `path`, opened */
    const ls_host *host;
    ls_card card;
    const ls_prep *there, *here;  /* preparations of the rows; NULL: not known */
    ls_dataset *rows;             /* the run's rows */
    const ls_dataset_info *train; /* their description */
    const ls_config *config;      /* the run's */
    const ls_network *model;      /* the run's */
    ls_origin *input, *output;    /* as in ls_move */
    names new_inputs, old_inputs; /* columns and levels that only the run, or only the file, has */
    names new_classes, old_classes;
    bool differs; /* the weights cannot be taken over as they are */
    ls_error *err;
} matching;

/* ---- names ----------------------------------------------------------------------------------- */

static void add_name(names *n, const char *name, const char *column)
{
    if (n->count++ >= NAMED)
        return;
    ls_buffer_format(&n->text, "%s\"%.60s\"", n->count > 1 ? ", " : "", name);
    if (column)
        ls_buffer_format(&n->text, " of \"%.60s\"", column);
}

static void warn(matching *m, names *n, const char *what)
{
    if (n->count > NAMED)
        ls_buffer_format(&n->text, " and %d more", n->count - NAMED);
    if (n->count > 0 && ls_buffer_status(&n->text, NULL) == LS_OK)
        ls_log(m->host, LS_LOG_WARNING, "init.weights: %.200s: %s: %.600s", m->path, what,
               n->text.text);
    m->differs = m->differs || n->count > 0;
    ls_buffer_fini(&n->text);
}

/* ---- columns and levels ---------------------------------------------------------------------- */

/* Returns what an input is in the file's scale. `index`: the input of the file; `distance`: mean of
 * the training rows minus that of the file. An input that was constant there, always 0, has learnt
 * nothing and is new; one that is constant here keeps its weights, which are multiplied by 0. */
static ls_origin origin_of(int index, double distance, double there, double here)
{
    const double old = ls_prep_divisor(there);
    if (isinf(old))
        return (ls_origin){.index = -1, .factor = 1};
    return (ls_origin){.index = index,
                       .factor = isinf(here) ? 1 : ls_prep_divisor(here) / old,
                       .shift = distance / old};
}

/* Returns what a scaled number is in the file's scale; `shift` is added to the raw number. */
static ls_origin scaled(const ls_prep_column *there, const ls_prep_column *here, double shift)
{
    return origin_of(there->first, here->mean + shift - there->mean, there->deviation,
                     here->deviation);
}

/* Sets the origin of the inputs of a column of texts, and notes the new levels. */
static void match_levels(matching *m, const ls_prep_column *there, const ls_prep_column *here)
{
    for (int k = 0; k < here->levels; k++) {
        const int was = ls_prep_level(there, here->level[k]);
        m->input[here->first + k].index = was < 0 ? -1 : there->first + was;
        if (was < 0)
            add_name(&m->new_inputs, here->level[k], here->name);
    }
    for (int k = 0; k < there->levels; k++)
        if (ls_prep_level(here, there->level[k]) < 0)
            add_name(&m->old_inputs, there->level[k], there->name);
}

static const ls_prep_column *find_part(const ls_prep_column *dates, ls_date_part is)
{
    for (int k = 0; k < dates->parts; k++)
        if (dates->part[k].is == is)
            return &dates->part[k];
    return NULL;
}

/* Sets the origin of the numbers of a column of dates. */
static void match_dates(matching *m, const ls_prep_column *there, const ls_prep_column *here)
{
    for (int k = 0; k < here->parts; k++) {
        const ls_prep_column *part = &here->part[k], *was = find_part(there, part->is);
        const double since = part->is == LS_PART_DAYS ? here->since - there->since : 0;
        if (was)
            m->input[part->first] = scaled(was, part, since);
        else
            add_name(&m->new_inputs, ls_date_part_names[part->is], here->name);
    }
    for (int k = 0; k < there->parts; k++)
        if (!find_part(here, there->part[k].is))
            add_name(&m->old_inputs, ls_date_part_names[there->part[k].is], there->name);
}

/* Returns whether two columns have values of the same kind: numbers, texts or dates. */
static bool is_same_kind(const ls_prep_column *a, const ls_prep_column *b)
{
    return !a->levels == !b->levels && !a->parts == !b->parts;
}

/* Returns the column of `prep` that has the name and kind of `column`; NULL: there is none. */
static const ls_prep_column *find_column(const ls_prep *prep, const ls_prep_column *column)
{
    const int at = ls_prep_find(prep, column->name);
    return at >= 0 && is_same_kind(&prep->column[at], column) ? &prep->column[at] : NULL;
}

static void match_table(matching *m)
{
    for (int i = 0; i < m->here->columns; i++) {
        const ls_prep_column *here = &m->here->column[i], *there = find_column(m->there, here);
        if (!there)
            add_name(&m->new_inputs, here->name, NULL);
        else if (here->levels)
            match_levels(m, there, here);
        else if (here->parts)
            match_dates(m, there, here);
        else
            m->input[here->first] = scaled(there, here, 0);
    }
    for (int i = 0; i < m->there->columns; i++)
        if (!find_column(m->here, &m->there->column[i]))
            add_name(&m->old_inputs, m->there->column[i].name, NULL);
}

/* Sets the origin of the values of an array's rows: they have no names, but scales. */
static void match_array(matching *m)
{
    for (int i = 0; i < m->here->scales; i++)
        m->input[i] = origin_of(i, m->here->mean[i] - m->there->mean[i], m->there->deviation[i],
                                m->here->deviation[i]);
}

/* Matches the inputs of rows without height and width, if both sides describe them. */
static int match_inputs(matching *m)
{
    const ls_prep *there = m->there, *here = m->here;
    const int count = m->model->input.c;
    const bool vectors =
        m->model->input.h * m->model->input.w == 1 && m->card.input.h * m->card.input.w == 1;
    const bool table = there && here && there->kind == LS_PREP_TABLE &&
                       here->kind == LS_PREP_TABLE && here->features == count;
    const bool array = there && here && there->kind == LS_PREP_ARRAY &&
                       here->kind == LS_PREP_ARRAY && here->scales == count &&
                       there->scales == count;
    if (!vectors || !(table || array))
        return LS_OK;
    m->input = ls_alloc_array(m->host, (size_t)count, sizeof *m->input);
    if (!m->input)
        return ls_fail(m->err, LS_ENOMEM, "out of memory for %d columns", count);
    for (int i = 0; i < count; i++)
        m->input[i] = (ls_origin){.index = -1, .factor = 1};
    if (table)
        match_table(m);
    else
        match_array(m);
    return LS_OK;
}

/* ---- outputs --------------------------------------------------------------------------------- */

/* Creates a preparation with a single column whose levels are the names of classes, so that
 * ls_prep_level finds a class by its name. */
static int list_classes(ls_prep **out, const char *const *name, int count, const ls_prep *of,
                        const matching *m)
{
    int status = ls_prep_create(out, LS_PREP_TABLE, m->host, m->err);
    if (status == LS_OK)
        status = ls_prep_add(*out, "class", name, count, m->err);
    if (status == LS_OK)
        (*out)->column[0].rule = of ? of->target_rule : LS_LEVELS_CODES;
    return status ? status : ls_prep_finish(*out, m->err);
}

static int match_classes(matching *m)
{
    const int count = m->model->classes;
    const char **name = ls_alloc_array(m->host, (size_t)m->card.classes, sizeof *name);
    ls_prep *there = NULL, *here = NULL;
    if (!name)
        return ls_fail(m->err, LS_ENOMEM, "out of memory for %d classes", m->card.classes);
    for (int k = 0; k < m->card.classes; k++)
        name[k] = ls_card_class_name(&m->card, k);
    int status = list_classes(&there, name, m->card.classes, m->there, m);
    if (status == LS_OK)
        status = list_classes(&here, m->train->class_name, count, m->here, m);
    for (int k = 0; k < count && status == LS_OK; k++) {
        m->output[k].index = ls_prep_level(&there->column[0], m->train->class_name[k]);
        if (m->output[k].index < 0)
            add_name(&m->new_classes, m->train->class_name[k], NULL);
    }
    for (int k = 0; k < m->card.classes && status == LS_OK; k++)
        if (ls_prep_level(&here->column[0], name[k]) < 0)
            add_name(&m->old_classes, name[k], NULL);
    ls_prep_free(there);
    ls_prep_free(here);
    ls_free(m->host, name);
    return status;
}

/* Scales the outputs for the targets' mean and deviation. */
static void match_values(matching *m)
{
    const int parts = m->model->classes / m->here->targets;
    for (int k = 0; k < m->model->classes; k++) {
        const int i = k / parts;
        const double now = ls_prep_divisor(m->here->target_deviation[i]);
        m->output[k].factor = ls_prep_divisor(m->there->target_deviation[i]) / now;
        m->output[k].shift = (m->there->target_mean[i] - m->here->target_mean[i]) / now;
    }
}

static int match_outputs(matching *m)
{
    const int count = m->model->classes;
    const bool named = m->card.names && m->train->class_name;
    const bool valued = m->there && m->here && m->here->targets > 0 &&
                        m->there->targets == m->here->targets && m->card.classes == count;
    if (!named && !valued)
        return LS_OK;
    m->output = ls_alloc_array(m->host, (size_t)count, sizeof *m->output);
    if (!m->output)
        return ls_fail(m->err, LS_ENOMEM, "out of memory for %d outputs", count);
    for (int k = 0; k < count; k++)
        m->output[k] = (ls_origin){.index = k, .factor = 1};
    if (named)
        return match_classes(m);
    match_values(m);
    return LS_OK;
}

/* ---- all of it ------------------------------------------------------------------------------- */

/* Returns whether all of `count` inputs or outputs are where they were in the file, unscaled. */
static bool is_same(const ls_origin *o, int count, int before)
{
    bool same = !o || count == before;
    for (int i = 0; o && same && i < count; i++)
        same = o[i].index == i && o[i].factor == 1 && o[i].shift == 0;
    return same;
}

/* Sets the preparations of both sides. A program's rows that come step by step have no scales yet,
 * and begin with those of the file. */
static void find_scales(matching *m)
{
    ls_error why;
    if (!ls_own_rows_know(m->rows) &&
        ls_own_rows_adopt(m->rows, m->card.prep, m->path, &why) != LS_OK)
        ls_log(m->host, LS_LOG_WARNING,
               "init.weights: %.600s; its weights are taken over as they are, so that predictions "
               "become others",
               why.text);
    if (!ls_own_rows_know(m->rows))
        return;
    m->there = m->card.prep;
    m->here = m->train->prep;
}

/* Returns whether the fixed scales of channels are the same as in the file. */
static bool has_same_channels(const matching *m)
{
    const ls_gather *a = &m->card.config.preprocessing, *b = &m->config->preprocessing;
    return memcmp(a->mean, b->mean, sizeof a->mean) == 0 &&
           memcmp(a->std, b->std, sizeof a->std) == 0;
}

/* Returns whether two lists of means and deviations are the same. */
static bool is_same_scale(const double *mean, const double *deviation, int count,
                          const double *mean_b, const double *deviation_b, int count_b)
{
    bool same = count == count_b;
    for (int i = 0; same && i < count; i++)
        same = mean[i] == mean_b[i] && deviation[i] == deviation_b[i];
    return same;
}

/* Warns if rows or targets have other scales than in the file, and the weights are not scaled. */
static void compare_scales(const matching *m)
{
    static const ls_prep none = {0};
    const ls_prep *a = m->there ? m->there : &none, *b = m->here ? m->here : &none;
    const bool rows =
        has_same_channels(m) && (m->input || is_same_scale(a->mean, a->deviation, a->scales,
                                                           b->mean, b->deviation, b->scales));
    const bool targets =
        m->output || is_same_scale(a->target_mean, a->target_deviation, a->targets, b->target_mean,
                                   b->target_deviation, b->targets);
    if (!rows || !targets)
        ls_log(
            m->host, LS_LOG_WARNING,
            "init.weights: %.200s: its %s have other means and deviations; its weights are taken "
            "over as they are, so that predictions become others",
            m->path, rows ? "targets" : "rows");
}

/* Reads the description of the file's model, and finds out where its inputs and outputs are. */
static int match(matching *m)
{
    names *const lists[] = {&m->new_inputs, &m->old_inputs, &m->new_classes, &m->old_classes};
    for (int i = 0; i < 4; i++)
        ls_buffer_init(&lists[i]->text, m->host);
    find_scales(m);
    int status = match_inputs(m);
    if (status == LS_OK)
        status = match_outputs(m);
    if (status == LS_OK)
        compare_scales(m);
    m->differs = !is_same(m->input, m->model->input.c, m->card.input.c) ||
                 !is_same(m->output, m->model->classes, m->card.classes);
    warn(m, &m->new_inputs, "it does not have these columns or texts; their weights begin with 0");
    warn(m, &m->old_inputs,
         "its weights of columns or texts that the training rows do not have are left out");
    warn(m, &m->new_classes, "it does not have these classes; their weights begin as without it");
    warn(m, &m->old_classes,
         "its weights of classes that the training rows do not have are left out");
    return status;
}

static int move(float *canonical, const matching *m, bool partial)
{
    ls_network *from = NULL;
    float *old = NULL;
    int status = ls_card_load(&from, &old, &m->card, m->file, m->err);
    const ls_move all = {.from = from,
                         .to = m->model,
                         .old = old,
                         .weights = canonical,
                         .input = m->input,
                         .output = m->output,
                         .partial = partial,
                         .path = m->path,
                         .host = m->host};
    if (status == LS_OK)
        status = ls_move_weights(&all, m->err);
    ls_network_destroy(from, m->host);
    ls_free(m->host, old);
    return status;
}

int ls_take_weights_over(float *canonical, const ls_config *c, const ls_network *model,
                         ls_dataset *train, ls_error *err)
{
    const char *path = c->init_weights;
    matching m = {.path = path,
                  .host = c->host,
                  .config = c,
                  .rows = train,
                  .train = ls_dataset_describe(train),
                  .model = model,
                  .err = err};
    ls_error why;
    ls_tensor_file *file;
    int status = ls_tensor_file_open(&file, path, c->host, err);
    m.file = file;
    const bool described = status == LS_OK && ls_card_read(&m.card, file, c->host, &why) == LS_OK;
    if (described)
        status = match(&m);
    if (status == LS_OK && m.differs)
        status = move(canonical, &m, c->init_partial);
    else if (status == LS_OK)
        status = c->init_partial ? ls_safetensors_read_fitting(canonical, file, model, c->host, err)
                                 : ls_safetensors_read(canonical, file, model, "", c->host, err);
    ls_free(c->host, m.input);
    ls_free(c->host, m.output);
    if (described)
        ls_card_fini(&m.card);
    ls_tensor_file_close(file);
    return status;
}
