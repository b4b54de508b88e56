/* SPDX-License-Identifier: MIT */
/* Lists the rows that a model predicts wrong (wrong.h). */
#include "model/wrong.h"

#include "base/error.h"
#include "base/host.h"
#include "model/outputs.h"
#include "model/predictions.h"
#include "store/durable.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- entries --------------------------------------------------------------------------------- */

/* Input of ls_wrong_add. */
typedef struct source {
    const ls_trained *t;
    const ls_dataset *data;
    ls_dataset_view view;
    ls_meaning meaning;
    double *output; /* [outputs] */
    ls_error *err;
} source;

static int no_memory(const source *s)
{
    return ls_fail(s->err, LS_ENOMEM, "out of memory for the wrong rows");
}

/* Appends an entry for row `i`. The texts are copied. */
static int add(ls_wrong *w, const source *s, uint32_t i, const char *label, const char *prediction,
               ls_wrong_row entry)
{
    const ls_row_origin origin = ls_dataset_origin(s->data, i);
    ls_wrong_row *all = ls_grown(w->host, w->row, w->count, &w->capacity, sizeof *all);
    if (!all)
        return no_memory(s);
    w->row = all;
    entry.line = origin.line;
    entry.row = origin.row;
    entry.file = origin.file ? ls_strdup(w->host, origin.file) : NULL;
    entry.label = ls_strdup(w->host, label);
    entry.prediction = ls_strdup(w->host, prediction);
    all[w->count++] = entry;
    return entry.label && entry.prediction && (entry.file || !origin.file) ? LS_OK : no_memory(s);
}

static const char *class_text(char number[16], const ls_trained *t, int label)
{
    const char *name = ls_class_name(t, label);
    snprintf(number, 16, "%d", label);
    return name ? name : number;
}

static int add_class(ls_wrong *w, const source *s, uint32_t i, const float *scores)
{
    char number[2][16];
    double probability;
    const int label = s->view.labels[s->view.row ? s->view.row[i] : i],
              best = ls_predicted_class(scores, &s->meaning, &probability);
    if (best == label)
        return LS_OK;
    return add(w, s, i, class_text(number[0], s->t, label), class_text(number[1], s->t, best),
               (ls_wrong_row){.size = probability, .of_label = s->output[label]});
}

/* Adds a yes-or-no target, if its prediction is wrong. */
static int add_bit(ls_wrong *w, const source *s, uint32_t i, int k, bool label)
{
    const double yes = s->output[k];
    const bool predicted = ls_predicted_yes(yes, &s->meaning);
    if (predicted == label)
        return LS_OK;
    return add(w, s, i, label ? "1" : "0", predicted ? "1" : "0",
               (ls_wrong_row){.target = k,
                              .size = predicted ? yes : 1 - yes,
                              .of_label = predicted ? 1 - yes : yes});
}

/* Adds a value. Of several quantiles of a target, the middle one is the prediction. */
static int add_value(ls_wrong *w, const source *s, uint32_t i, int k, float learnt)
{
    char text[2][LS_SHORTEST];
    const int middle = s->meaning.outputs / w->targets / 2;
    const double label = ls_target_in_data(s->t->card.prep, (size_t)k, learnt),
                 value = s->output[middle * w->targets + k];
    ls_shortest(text[0], label, false);
    ls_value_text(text[1], value);
    return add(w, s, i, text[0], text[1],
               (ls_wrong_row){.target = k, .size = fabs(value - label), .of_label = NAN});
}

static int add_row(ls_wrong *w, const source *s, uint32_t i, const float *scores)
{
    const ls_task task = ls_meaning_task(&s->meaning);
    int status = LS_OK;
    ls_outputs(s->output, scores, LS_OUTPUT_PREDICTION, &s->meaning);
    if (task == LS_TASK_CLASSES)
        return add_class(w, s, i, scores);
    const size_t row = s->view.row ? s->view.row[i] : i;
    const float *target = s->view.targets + row * (size_t)w->targets;
    for (int k = 0; status == LS_OK && k < w->targets; k++)
        status = task == LS_TASK_YES_NO ? add_bit(w, s, i, k, target[k] > 0.5f)
                                        : add_value(w, s, i, k, target[k]);
    return status;
}

int ls_wrong_add(ls_wrong *w, const ls_trained *t, bool train, const float *scores, ls_error *err)
{
    source s = {.t = t,
                .data = t->data[train ? LS_TRAIN : LS_TEST],
                .meaning = {t->config.loss, t->card.prep, t->model->classes, t->card.threshold},
                .err = err};
    const uint32_t rows = ls_dataset_rows(s.data);
    const size_t outputs = (size_t)t->model->classes;
    int status = LS_OK;
    s.view = ls_dataset_resident(s.data);
    s.output = ls_alloc_array(t->host, outputs, sizeof *s.output);
    if (!s.output)
        status = no_memory(&s);
    w->values = ls_meaning_task(&s.meaning) == LS_TASK_VALUES;
    w->targets = ls_dataset_describe(s.data)->targets;
    w->targets = w->targets ? w->targets : 1;
    for (uint32_t i = 0; status == LS_OK && i < rows; i++)
        status = add_row(w, &s, i, scores + i * outputs);
    w->rows += rows;
    ls_free(t->host, s.output);
    return status;
}

void ls_wrong_free(ls_wrong *w)
{
    for (size_t i = 0; i < w->count; i++) {
        ls_free(w->host, w->row[i].file);
        ls_free(w->host, w->row[i].label);
        ls_free(w->host, w->row[i].prediction);
    }
    ls_free(w->host, w->row);
    *w = (ls_wrong){.host = w->host};
}

/* Returns the number by which the entries are sorted, the smallest first; NaN is before all. */
static double order_of(const ls_wrong_row *r)
{
    return isnan(r->of_label) ? -r->size : r->of_label;
}

static int by_order(const void *a, const void *b)
{
    const ls_wrong_row *x = a, *y = b;
    const double first = order_of(x), second = order_of(y);
    if (first != second && !(isnan(first) && isnan(second)))
        return isnan(first) || first < second ? -1 : 1;
    if (x->row != y->row)
        return x->row < y->row ? -1 : 1;
    return x->target - y->target;
}

void ls_wrong_sort(ls_wrong *w)
{
    if (w->count > 0)
        qsort(w->row, w->count, sizeof *w->row, by_order);
}

/* ---- the file -------------------------------------------------------------------------------- */

void ls_put_csv_field(ls_buffer *b, const char *before, const char *text)
{
    ls_buffer_put(b, before);
    const bool quoted = strpbrk(text, ",\"\r\n") || text[0] == ' ';
    ls_buffer_put(b, quoted ? "\"" : "");
    for (const char *c = text; *c; c++) {
        const char one[3] = {*c, quoted && *c == '"' ? '"' : '\0', '\0'};
        ls_buffer_put(b, one);
    }
    ls_buffer_put(b, quoted ? "\"" : "");
}

static void put_row(ls_buffer *b, const ls_wrong *w, const ls_wrong_row *r)
{
    const ls_wrong_row *first = w->row;
    if (first->file)
        ls_put_csv_field(b, "", r->file ? r->file : "");
    else
        ls_buffer_format(b, "%u", (unsigned)(first->line ? r->line : r->row));
    if (w->targets > 1)
        ls_buffer_format(b, ",%d", r->target);
    ls_put_csv_field(b, ",", r->label);
    ls_put_csv_field(b, ",", r->prediction);
    ls_buffer_format(b, ",%.9g", r->size);
    if (!w->values)
        ls_buffer_format(b, ",%.9g", r->of_label);
    ls_buffer_put(b, "\n");
}

int ls_wrong_write(ls_wrong *w, const char *to, ls_error *err)
{
    ls_buffer text;
    const char *place = "row";
    if (w->count > 0 && w->row->file)
        place = "file";
    else if (w->count > 0 && w->row->line)
        place = "line";
    ls_wrong_sort(w);
    ls_buffer_init(&text, w->host);
    ls_buffer_format(&text, "%s%s,label,prediction,%s\n", place, w->targets > 1 ? ",target" : "",
                     w->values ? "error" : "probability,probability_of_label");
    for (size_t i = 0; i < w->count; i++)
        put_row(&text, w, &w->row[i]);
    int status = ls_buffer_status(&text, err);
    if (status == LS_OK)
        status = ls_write_file(to, text.text, text.length, w->host, err);
    ls_buffer_fini(&text);
    return status;
}
