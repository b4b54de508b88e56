/* SPDX-License-Identifier: MIT */
/* Writes the nodes that convert rows of the user's files to the input of the first layer. Names of
 * constants and of nodes' outputs contain a colon, so that they differ from the names of inputs. */
#include "onnx/rows.h"

#include "prep/prep.h"
#include "json/json.h"
#include "json/writer.h"

#include <float.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#define INPUT "x"

enum { MOST_COLUMNS_TOLD = 4096 };

static const ls_prep *table_of(const ls_onnx_desc *d)
{
    return d->prep && d->prep->kind == LS_PREP_TABLE ? d->prep : NULL;
}

bool ls_onnx_has_texts(const ls_onnx_desc *d)
{
    const ls_prep *table = table_of(d);
    for (int i = 0; table && i < table->columns; i++)
        if (table->column[i].levels > 0)
            return true;
    return false;
}

/* ---- nodes of one input and one output ------------------------------------------------------- */

/* Adds a node op(x, constant), or op(x) if `constant` is NULL, and replaces *x by its output. */
static void apply(ls_onnx_file *f, ls_onnx_tensor *x, const char *op, const char *constant)
{
    char name[sizeof x->name];
    snprintf(name, sizeof name, INPUT ":%s", op);
    ls_onnx_node_begin(f, op, name, x->name);
    if (constant)
        ls_onnx_node_input(f, constant);
    ls_onnx_node_end(f, name);
    memcpy(x->name, name, sizeof name);
}

static void cast(ls_onnx_file *f, ls_onnx_tensor *x, int type)
{
    char name[sizeof x->name];
    snprintf(name, sizeof name, INPUT ":as%d", type);
    ls_onnx_node_begin(f, "Cast", name, x->name);
    ls_onnx_node_int(f, "to", type);
    ls_onnx_node_end(f, name);
    memcpy(x->name, name, sizeof name);
}

/* Adds nodes that replace NaN in *x, and inf and −inf as well if `infinite` is set, by the
 * constant, and replaces *x by their output. */
static void fill(ls_onnx_file *f, ls_onnx_tensor *x, const char *constant, bool infinite)
{
    const char *missing = INPUT ":isnan";
    ls_onnx_node_begin(f, "IsNaN", missing, x->name);
    ls_onnx_node_end(f, missing);
    if (infinite) {
        ls_onnx_node_begin(f, "IsInf", INPUT ":isinf", x->name);
        ls_onnx_node_end(f, INPUT ":isinf");
        ls_onnx_node_begin(f, "Or", INPUT ":missing", missing);
        ls_onnx_node_input(f, INPUT ":isinf");
        missing = INPUT ":missing";
        ls_onnx_node_end(f, missing);
    }
    ls_onnx_node_begin(f, "Where", INPUT ":filled", missing);
    ls_onnx_node_input(f, constant);
    ls_onnx_node_input(f, x->name);
    ls_onnx_node_end(f, INPUT ":filled");
    snprintf(x->name, sizeof x->name, INPUT ":filled");
}

/* ---- tables ---------------------------------------------------------------------------------- */

/* The operations that scale numbers, in this order, and the names of their constants for the
 * columns of a table and for the values of an array. */
static const struct {
    const char *op, *of_columns, *of_values;
} steps[] = {{"Sub", "column_mean:by", "value_mean:by"},
             {"Div", "column_deviation:by", "value_deviation:by"},
             {"Max", "column_least:by", "value_least:by"},
             {"Min", "column_most:by", "value_most:by"}};

/* Returns the constant of operation number `step` of `steps`. */
static double constant_of(int step, double mean, double deviation, double clip)
{
    const double most = clip > 0 ? clip : DBL_MAX;
    return step == 0 ? mean : step == 1 ? ls_prep_divisor(deviation) : step == 2 ? -most : most;
}

/* Returns whether a column's numbers need doubles. All columns are then concatenated as doubles. */
static bool has_wide(const ls_prep *p)
{
    for (int i = 0; i < p->columns; i++)
        if (p->column[i].wide)
            return true;
    return false;
}

/* Adds nodes that make a number NaN that is a double but no float, as it is unknown (prep/prep.h).
 */
static void refuse_large(ls_onnx_file *f, ls_onnx_tensor *x)
{
    const double unknown = NAN;
    const char *large = INPUT ":large";
    ls_onnx_node_begin(f, "Cast", INPUT ":narrow", x->name);
    ls_onnx_node_int(f, "to", LS_ONNX_FLOAT);
    ls_onnx_node_end(f, INPUT ":narrow");
    ls_onnx_node_begin(f, "IsInf", large, INPUT ":narrow");
    ls_onnx_node_end(f, large);
    ls_onnx_put_double(f, unknown);
    ls_onnx_put_tensor(f, "unknown:by", LS_ONNX_DOUBLE, NULL, 0);
    ls_onnx_node_begin(f, "Where", INPUT ":held", large);
    ls_onnx_node_input(f, "unknown:by");
    ls_onnx_node_input(f, x->name);
    ls_onnx_node_end(f, INPUT ":held");
    snprintf(x->name, sizeof x->name, INPUT ":held");
}

#define KEPT INPUT ":kept"

/* Adds the nodes that compute KEPT: 0 for each number, and NaN for NaN. Some programs lose a NaN in
 * Max and Min. */
static void keep_nan(ls_onnx_file *f, const ls_onnx_tensor *x)
{
    const double zero = 0;
    ls_onnx_put_double(f, zero);
    ls_onnx_put_tensor(f, "kept:by", LS_ONNX_DOUBLE, NULL, 0);
    ls_onnx_node_begin(f, "Mul", KEPT, x->name);
    ls_onnx_node_input(f, "kept:by");
    ls_onnx_node_end(f, KEPT);
}

/* Adds the nodes that scale the columns of a table. They compute in double, as prep.c does, because
 * the mean of a column can be large compared with its deviation. */
static void scale_table(ls_onnx_file *f, const ls_prep *p, ls_onnx_tensor *x)
{
    const int dim[2] = {1, p->features};
    bool numbers = false, scales = false, clips = false;
    for (int i = 0; i < p->features; i++) {
        const ls_prep_column *c = ls_prep_feature(p, i);
        numbers |= c->levels == 0;
        scales |= c->scaled;
        clips |= c->clip > 0;
    }
    if (!numbers)
        return;
    if (!has_wide(p))
        cast(f, x, LS_ONNX_DOUBLE);
    for (int i = 0; i < p->features; i++) {
        const ls_prep_column *c = ls_prep_feature(p, i);
        /* NaN in a column of texts is an unknown text */
        ls_onnx_put_double(f, c->allows_missing && !c->levels ? c->missing : (double)NAN);
    }
    ls_onnx_put_tensor(f, "missing:by", LS_ONNX_DOUBLE, dim, 2);
    fill(f, x, "missing:by", true);
    if (has_wide(p))
        refuse_large(f, x);
    if (clips)
        keep_nan(f, x);
    for (int step = scales ? 0 : 2; step < (clips ? 4 : 2); step++) {
        for (int i = 0; i < p->features; i++) {
            const ls_prep_column *c = ls_prep_feature(p, i);
            ls_onnx_put_double(f, constant_of(step, c->mean, c->deviation, c->clip));
        }
        ls_onnx_put_tensor(f, steps[step].of_columns, LS_ONNX_DOUBLE, dim, 2);
        apply(f, x, steps[step].op, steps[step].of_columns);
    }
    if (clips)
        apply(f, x, "Add", KEPT);
    cast(f, x, LS_ONNX_FLOAT);
}

#define UNKNOWN INPUT ":unknown"

/* Adds the nodes that compute UNKNOWN, a float for each row: NaN if a value of the row is unknown,
 * else 0. Layers can lose a NaN, such as max(NaN, 0). */
static void find_unknown(ls_onnx_file *f, const ls_onnx_tensor *x)
{
    const float zero = 0;
    const int64_t axis = 1;
    const char *vectors = x->rank == 2 ? x->name : INPUT ":vectors";
    if (x->rank > 2) {
        ls_onnx_node_begin(f, "Flatten", vectors, x->name);
        ls_onnx_node_int(f, "axis", 1);
        ls_onnx_node_end(f, vectors);
    }
    ls_onnx_put_floats(f, "zero:by", NULL, 0, &zero, 1);
    ls_onnx_put_int64s(f, "unknown:axis", &axis, 1);
    ls_onnx_node_begin(f, "Mul", INPUT ":zero", vectors);
    ls_onnx_node_input(f, "zero:by");
    ls_onnx_node_end(f, INPUT ":zero");
    ls_onnx_node_begin(f, "ReduceSum", UNKNOWN, INPUT ":zero");
    ls_onnx_node_input(f, "unknown:axis");
    ls_onnx_node_end(f, UNKNOWN);
}

/* An input of the graph: a column, or a part of a column of dates, because a graph cannot read
 * dates. It starts as {0}. */
typedef struct graph_input {
    const ls_prep_column *column, *whole; /* the column or part; the column that it is from */
    int nth;                              /* number of the input, in names of tensors */
    int next, part;                       /* column and part of the next input */
} graph_input;

/* Finds the next input. Returns false if there is none. */
static bool next_input(const ls_prep *p, graph_input *in)
{
    if (in->next == p->columns)
        return false;
    const ls_prep_column *c = in->whole = &p->column[in->next];
    in->column = c->parts ? &c->part[in->part] : c;
    in->nth = c->parts ? p->columns + in->column->first : in->next;
    if (++in->part >= c->parts) {
        in->part = 0;
        in->next++;
    }
    return true;
}

/* Returns the name of an input. It is the name of the column or part; if that is empty, has a colon
 * or is used for another tensor of the graph, it is "column:NUMBER". */
static const char *input_name(char *text, size_t size, const ls_onnx_desc *d, const graph_input *in)
{
    const ls_network *m = d->model;
    const char *name = in->column->name;
    const bool is_part = in->column != in->whole;
    bool taken = (is_part && ls_prep_find(d->prep, name) >= 0) || !name[0] || strchr(name, ':') ||
                 strcmp(name, LS_ONNX_LOGITS) == 0 || strcmp(name, LS_ONNX_PROBABILITIES) == 0 ||
                 (d->loss && d->loss->counts && strcmp(name, LS_ONNX_COUNTS) == 0);
    for (int i = 0; !taken && i < m->params + m->stats; i++)
        taken = strcmp(name, m->tensor[i]->name) == 0;
    snprintf(text, size, "column:%d", in->nth);
    return taken ? text : name;
}

static bool is_level(const ls_prep_column *column, const char *text)
{
    for (int i = 0; i < column->levels; i++)
        if (strcmp(column->level[i], text) == 0)
            return true;
    return false;
}

/* Adds the nodes that divide the one-hot rows `flat` by their sums, so that the row of a text that
 * is neither a level nor a word for a missing text becomes NaN: 0 / 0. */
static void mark_unknown(ls_onnx_file *f, int nth, const char *flat, const char *axis,
                         const char *out)
{
    char sum[48];
    snprintf(sum, sizeof sum, "column:%d:sum", nth);
    ls_onnx_node_begin(f, "ReduceSum", sum, flat);
    ls_onnx_node_input(f, axis);
    ls_onnx_node_end(f, sum);
    ls_onnx_node_begin(f, "Div", out, flat);
    ls_onnx_node_input(f, sum);
    ls_onnx_node_end(f, out);
}

/* Adds the nodes that convert an input of strings [batch, 1] to one-hot rows [batch, levels]. If
 * missing texts are allowed, the words that mean one are additional levels, whose columns are cut
 * off, so that a missing text becomes zeros. A text that is no level becomes zeros if `zeros` is
 * set, else NaN. */
static void encode(ls_onnx_file *f, const ls_prep_column *column, int nth, const char *input,
                   bool zeros)
{
    char hot[48], flat[48], known[48], begin[48], end[48], axis[48], out[48];
    const int64_t zero = 0, one = 1, levels = column->levels;
    snprintf(hot, sizeof hot, "column:%d:hot", nth);
    snprintf(flat, sizeof flat, "column:%d:flat", nth);
    snprintf(known, sizeof known, "column:%d:known", nth);
    snprintf(out, sizeof out, "column:%d:raw", nth);
    ls_onnx_node_begin(f, "OneHotEncoder", hot, input);
    ls_onnx_node_domain(f, "ai.onnx.ml");
    for (int i = 0; i < column->levels; i++)
        ls_onnx_node_add_text(f, column->level[i]);
    for (int i = 0; column->allows_missing && ls_missing_word(i); i++)
        if (!is_level(column, ls_missing_word(i)))
            ls_onnx_node_add_text(f, ls_missing_word(i));
    ls_onnx_node_texts(f, "cats_strings");
    ls_onnx_node_int(f, "zeros", 1);
    ls_onnx_node_end(f, hot);
    ls_onnx_node_begin(f, "Flatten", flat, hot);
    ls_onnx_node_int(f, "axis", 1);
    ls_onnx_node_end(f, flat);
    snprintf(begin, sizeof begin, "column:%d:begin", nth);
    snprintf(end, sizeof end, "column:%d:end", nth);
    snprintf(axis, sizeof axis, "column:%d:axis", nth);
    ls_onnx_put_int64s(f, begin, &zero, 1);
    ls_onnx_put_int64s(f, end, &levels, 1);
    ls_onnx_put_int64s(f, axis, &one, 1);
    if (!zeros)
        mark_unknown(f, nth, flat, axis, known);
    ls_onnx_node_begin(f, "Slice", out, zeros ? flat : known);
    ls_onnx_node_input(f, begin);
    ls_onnx_node_input(f, end);
    ls_onnx_node_input(f, axis);
    ls_onnx_node_end(f, out);
}

/* Adds the node that converts the floats `from` of column number `nth` to doubles. */
static void widen(ls_onnx_file *f, int nth, const char *from)
{
    char name[48];
    snprintf(name, sizeof name, "column:%d:wide", nth);
    ls_onnx_node_begin(f, "Cast", name, from);
    ls_onnx_node_int(f, "to", LS_ONNX_DOUBLE);
    ls_onnx_node_end(f, name);
}

/* Writes an input of the graph for each column, and the nodes that concatenate the columns'
 * floats. */
static void put_columns(ls_onnx_file *f, const ls_onnx_desc *d, ls_onnx_tensor *x)
{
    const ls_prep *p = d->prep;
    const bool wide = has_wide(p);
    const int one = 1;
    char text[48];
    for (graph_input in = {0}; next_input(p, &in);) {
        const char *name = input_name(text, sizeof text, d, &in);
        const ls_prep_column *c = in.column;
        const int i = in.nth;
        char raw[48];
        ls_onnx_put_input(f, name,
                          c->levels ? LS_ONNX_STRING
                          : c->wide ? LS_ONNX_DOUBLE
                                    : LS_ONNX_FLOAT,
                          &one, 1);
        snprintf(raw, sizeof raw, "column:%d:raw", i);
        if (c->levels)
            encode(f, c, i, name, p->unknown == LS_UNKNOWN_ZEROS);
        if (wide && !c->wide)
            widen(f, i, c->levels ? raw : name);
    }
    snprintf(x->name, sizeof x->name, INPUT ":raw");
    for (graph_input in = {0}; next_input(p, &in);) {
        const ls_prep_column *c = in.column;
        const char *name = input_name(text, sizeof text, d, &in);
        char raw[48];
        snprintf(raw, sizeof raw, "column:%d:%s", in.nth, wide ? "wide" : "raw");
        if (wide ? !c->wide : c->levels > 0)
            name = raw;
        if (c->first == 0)
            ls_onnx_node_begin(f, "Concat", x->name, name);
        else
            ls_onnx_node_input(f, name);
    }
    ls_onnx_node_int(f, "axis", 1);
    ls_onnx_node_end(f, x->name);
}

/* ---- arrays and images ----------------------------------------------------------------------- */

/* Returns the value of channel `i`. `value` has an entry for each of the first four channels; the
 * fourth also applies to all further channels. */
static float value_of(const float value[4], int i)
{
    return value[i < 4 ? i : 3];
}

/* Adds a node op(x, value), with a value for each channel, and replaces *x by its output. Adds no
 * node if every value is `nothing`, with which the operation changes nothing. */
static void per_channel(ls_onnx_file *f, const ls_onnx_desc *d, ls_onnx_tensor *x, const char *op,
                        const char *constant, const float value[4], float nothing)
{
    const int channels = d->model->input.c, dim[4] = {1, channels, 1, 1};
    bool changes = false;
    for (int i = 0; i < channels; i++)
        changes |= value_of(value, i) != nothing;
    if (!changes)
        return;
    for (int i = 0; i < channels; i++)
        ls_onnx_put_float(f, value_of(value, i));
    ls_onnx_put_tensor(f, constant, LS_ONNX_FLOAT, dim, x->rank);
    ls_onnx_node_begin(f, op, constant, x->name);
    ls_onnx_node_input(f, constant);
    snprintf(x->name, sizeof x->name, "%s:out", constant);
    ls_onnx_node_end(f, x->name);
}

/* Returns whether the graph's input is doubles. */
static bool is_wide(const ls_onnx_desc *d)
{
    return table_of(d) ? has_wide(table_of(d)) : d->prep && d->prep->wide;
}

/* Adds the nodes that scale the values of an array. They compute in double, as prep.c does. */
static void scale_array(ls_onnx_file *f, const ls_prep *p, ls_onnx_tensor *x, bool wide)
{
    const int dim[4] = {1, p->scales, 1, 1};
    if (wide)
        refuse_large(f, x);
    else
        cast(f, x, LS_ONNX_DOUBLE);
    if (p->clip > 0)
        keep_nan(f, x);
    for (int step = 0; step < (p->clip > 0 ? 4 : 2); step++) {
        for (int i = 0; i < p->scales; i++)
            ls_onnx_put_double(f, constant_of(step, p->mean[i], p->deviation[i], p->clip));
        ls_onnx_put_tensor(f, steps[step].of_values, LS_ONNX_DOUBLE, dim, x->rank);
        apply(f, x, steps[step].op, steps[step].of_values);
    }
    if (p->clip > 0)
        apply(f, x, "Add", KEPT);
    cast(f, x, LS_ONNX_FLOAT);
}

static void fill_array(ls_onnx_file *f, const ls_onnx_desc *d, ls_onnx_tensor *x)
{
    const ls_shape *in = &d->model->input;
    const int dim[4] = {1, in->c, in->h, in->w};
    const ls_prep *p = d->prep;
    if (!p || p->kind != LS_PREP_ARRAY)
        return;
    if (p->fills && is_wide(d)) {
        for (int i = 0; i < p->fills; i++)
            ls_onnx_put_double(f, (double)p->fill[i]);
        ls_onnx_put_tensor(f, "missing:by", LS_ONNX_DOUBLE, dim, p->fills == 1 ? 0 : x->rank);
    } else if (p->fills) {
        ls_onnx_put_floats(f, "missing:by", dim, p->fills == 1 ? 0 : x->rank, p->fill,
                           (size_t)p->fills);
    }
    if (p->fills)
        fill(f, x, "missing:by", false);
    if (p->scales)
        scale_array(f, p, x, is_wide(d));
}

ls_onnx_tensor ls_onnx_put_rows(ls_onnx_file *f, const ls_onnx_desc *d)
{
    const ls_shape *in = &d->model->input;
    const int shape[3] = {in->c, in->h, in->w}, rank = in->h * in->w == 1 ? 2 : 4;
    ls_onnx_tensor x = {INPUT, rank};
    if (ls_onnx_has_texts(d))
        put_columns(f, d, &x);
    else
        ls_onnx_put_input(f, INPUT,
                          !d->normalisation.floats ? LS_ONNX_UINT8
                          : is_wide(d)             ? LS_ONNX_DOUBLE
                                                   : LS_ONNX_FLOAT,
                          shape, rank - 1);
    if (!d->normalisation.floats) {
        const float most = 255;
        cast(f, &x, LS_ONNX_FLOAT);
        ls_onnx_put_floats(f, "divisor:by", NULL, 0, &most, 1);
        apply(f, &x, "Div", "divisor:by");
    } else if (table_of(d)) {
        scale_table(f, d->prep, &x);
    } else {
        fill_array(f, d, &x);
    }
    if (d->normalisation.floats)
        find_unknown(f, &x);
    per_channel(f, d, &x, "Sub", "mean:by", d->normalisation.mean, 0);
    per_channel(f, d, &x, "Div", "std:by", d->normalisation.std, 1);
    return x;
}

/* ---- outputs --------------------------------------------------------------------------------- */

static void step_back(ls_onnx_file *f, ls_onnx_tensor *y, const char *op, const char *name,
                      const char *constant, int type)
{
    ls_onnx_node_begin(f, op, name, y->name);
    if (constant)
        ls_onnx_node_input(f, constant);
    else
        ls_onnx_node_int(f, "to", type);
    ls_onnx_node_end(f, name);
    snprintf(y->name, sizeof y->name, "%s", name);
}

/* Adds the node that makes the outputs of the rows with unknown values NaN. */
static void empty_unknown(ls_onnx_file *f, ls_onnx_tensor *y)
{
    const char *name = "logits:known";
    ls_onnx_node_begin(f, "Add", name, y->name);
    ls_onnx_node_input(f, UNKNOWN);
    ls_onnx_node_end(f, name);
    snprintf(y->name, sizeof y->name, "%s", name);
}

/* The nodes compute in double, as prep.c does. */
void ls_onnx_give_back(ls_onnx_file *f, const ls_onnx_desc *d, ls_onnx_tensor *y)
{
    const ls_prep *p = d->prep;
    const int outputs = d->model->classes;
    if (d->normalisation.floats)
        empty_unknown(f, y);
    if (!p || p->targets == 0)
        return;
    for (int i = 0; i < outputs; i++)
        ls_onnx_put_double(f, ls_prep_divisor(p->target_deviation[i % p->targets]));
    ls_onnx_put_tensor(f, "target_deviation:by", LS_ONNX_DOUBLE, &outputs, 1);
    for (int i = 0; i < outputs; i++)
        ls_onnx_put_double(f, p->target_mean[i % p->targets]);
    ls_onnx_put_tensor(f, "target_mean:by", LS_ONNX_DOUBLE, &outputs, 1);
    step_back(f, y, "Cast", "target:double", NULL, LS_ONNX_DOUBLE);
    step_back(f, y, "Mul", "target:scaled", "target_deviation:by", 0);
    step_back(f, y, "Add", "target:moved", "target_mean:by", 0);
    step_back(f, y, "Cast", "target:float", NULL, LS_ONNX_FLOAT);
}

/* ---- metadata -------------------------------------------------------------------------------- */

/* Appends the text of `w` as the metadata entry `key`, and resets `w`. */
static void put_json(ls_buffer *out, ls_onnx_file *f, const char *key, ls_json_writer *w)
{
    const char *text = ls_json_writer_text(w, NULL, NULL);
    if (text)
        ls_onnx_put_entry(out, f, key, text);
    out->failed |= !text;
    ls_json_writer_reset(w);
}

/* Appends the metadata entry `key`: an array with a number for each channel. */
static void put_numbers(ls_buffer *out, ls_onnx_file *f, const char *key, ls_json_writer *w,
                        const float value[4], int n)
{
    ls_json_open_array(w, NULL);
    for (int i = 0; i < n; i++)
        ls_json_put_float(w, NULL, value_of(value, i));
    ls_json_close(w);
    put_json(out, f, key, w);
}

static void tell_shape(ls_json_writer *w, const int *dim, int rank)
{
    ls_json_open_array(w, "shape");
    ls_json_put_string(w, NULL, "batch");
    for (int i = 0; i < rank; i++)
        ls_json_put_int(w, NULL, dim[i]);
    ls_json_close(w);
}

/* Writes an object {"name", "type", "shape", "column"} for each column's input. */
static void list_inputs(ls_json_writer *w, const ls_onnx_desc *d)
{
    const int one = 1;
    char text[48];
    for (graph_input in = {0}; next_input(d->prep, &in);) {
        ls_json_open_object(w, NULL);
        ls_json_put_string(w, "name", input_name(text, sizeof text, d, &in));
        const ls_prep_column *c = in.column;
        ls_json_put_string(w, "type", c->levels ? "string" : c->wide ? "float64" : "float32");
        tell_shape(w, &one, 1);
        ls_json_put_string(w, "column", in.whole->name);
        if (c != in.whole)
            ls_json_put_string(w, "part", ls_date_part_names[c->is]);
        ls_json_close(w);
    }
}

static void tell_input(ls_json_writer *w, const ls_onnx_desc *d)
{
    const ls_shape *in = &d->model->input;
    const int shape[3] = {in->c, in->h, in->w};
    const ls_prep *table = table_of(d);
    char text[48];
    ls_json_open_object(w, NULL);
    ls_json_put_string(w, "name", INPUT);
    ls_json_put_string(w, "type",
                       !d->normalisation.floats ? "uint8"
                       : is_wide(d)             ? "float64"
                                                : "float32");
    tell_shape(w, shape, in->h * in->w == 1 ? 1 : 3);
    if (table && table->columns <= MOST_COLUMNS_TOLD) {
        ls_json_open_array(w, "columns");
        for (graph_input at = {0}; next_input(table, &at);)
            ls_json_put_string(w, NULL,
                               at.column == at.whole ? at.column->name
                                                     : input_name(text, sizeof text, d, &at));
        ls_json_close(w);
    }
    ls_json_close(w);
}

/* Appends the metadata entries whose values are in the model's card. */
static void put_card(ls_buffer *out, ls_onnx_file *f, ls_json_writer *w, const char *card)
{
    static const char *const keys[] = {"class_names", "features", "preparation", "threshold"};
    ls_json *doc = NULL;
    out->failed |= ls_json_parse(&doc, "", card, strlen(card), out->host, NULL) != LS_OK;
    for (int i = 0; i < 4 && doc; i++) {
        const cJSON *node = cJSON_GetObjectItemCaseSensitive(ls_json_root(doc), keys[i]);
        if (node) {
            ls_json_put_node(w, NULL, node);
            put_json(out, f, keys[i], w);
        }
    }
    ls_json_destroy(doc);
}

static const char *say_input(const ls_onnx_desc *d)
{
    const bool vectors = d->model->input.h * d->model->input.w == 1;
    if (ls_onnx_has_texts(d))
        return "an input for each column, batch x 1: numbers as in the table, NaN where one is "
               "missing; texts as strings, empty where one is missing; the graph contains their "
               "preparation";
    if (table_of(d))
        return "x: numbers as in the table, NaN where one is missing, batch x columns; mean and "
               "deviation are in the graph";
    if (!d->normalisation.floats)
        return vectors
                   ? "x: uint8, batch x values; the division by 255, mean and std are in the graph"
                   : "x: pixels, uint8, batch x channels x height x width; the division by 255, "
                     "mean and std are in the graph";
    if (is_wide(d))
        return vectors ? "x: values as in the data, float64, batch x values; mean and std are in "
                         "the graph"
                       : "x: values as in the data, float64, batch x channels x height x width; "
                         "mean and std are in the graph";
    return vectors
               ? "x: values as in the data, float32, batch x values; mean and std are in the graph"
               : "x: values as in the data, float32, batch x channels x height x width; mean and "
                 "std are in the graph";
}

/* The meaning of the parts of dates (prep/date.h) in words. */
#define SAY_DATES                                                                                  \
    "a date is given by its parts: COLUMN_year; COLUMN_month, 1 to 12; COLUMN_weekday, 0 "         \
    "(Monday) to 6; COLUMN_hour, with the minutes as a fraction; COLUMN_days since the day "       \
    "`since` of `preparation`, which is counted from 1970-01-01; NaN if it is missing"

static bool has_dates(const ls_onnx_desc *d)
{
    const ls_prep *table = table_of(d);
    for (int i = 0; table && i < table->columns; i++)
        if (table->column[i].date)
            return true;
    return false;
}

static bool has_quantiles(const ls_onnx_desc *d)
{
    return d->loss && d->loss->vectors && d->loss->rule == LS_VECTOR_QUANTILE;
}

static const char *say_output(const ls_onnx_desc *d)
{
    const ls_loss *loss = d->loss;
    if (!loss || !loss->vectors)
        return "logits: one for each class; probabilities: their softmax";
    if (loss->counts)
        return "logits: the logarithm of each expected count; counts: the expected counts";
    if (has_quantiles(d))
        return "logits: the quantiles that output_names lists, in the unit of the targets";
    return loss->bits ? "logits: one for each target; probabilities: their sigmoids"
                      : "logits: the values themselves, in the unit of the targets";
}

/* Appends the names of the quantiles, in the order of the outputs. */
static void list_quantiles(ls_buffer *out, ls_onnx_file *f, ls_json_writer *w,
                           const ls_onnx_desc *d)
{
    char name[32];
    const int outputs = d->model->classes;
    ls_json_open_array(w, NULL);
    for (int i = 0; i < outputs; i++) {
        ls_quantile_name(name, &d->vector_loss, outputs / d->vector_loss.quantiles, i);
        ls_json_put_string(w, NULL, name);
    }
    ls_json_close(w);
    put_json(out, f, "output_names", w);
}

void ls_onnx_put_metadata(ls_buffer *out, ls_onnx_file *f, const ls_onnx_desc *d)
{
    const ls_shape *in = &d->model->input;
    const float size[4] = {(float)in->c, (float)in->h, (float)in->w};
    ls_json_writer w;
    ls_json_writer_init(&w, 0, out->host);
    ls_onnx_put_entry(out, f, "input", say_input(d));
    ls_json_open_array(&w, NULL);
    if (ls_onnx_has_texts(d))
        list_inputs(&w, d);
    else
        tell_input(&w, d);
    ls_json_close(&w);
    put_json(out, f, "inputs", &w);
    if (has_dates(d))
        ls_onnx_put_entry(out, f, "dates", SAY_DATES);
    ls_onnx_put_entry(out, f, "output", say_output(d));
    if (has_quantiles(d))
        list_quantiles(out, f, &w, d);
    put_numbers(out, f, "size", &w, size, 3);
    put_numbers(out, f, "mean", &w, d->normalisation.mean, in->c);
    put_numbers(out, f, "std", &w, d->normalisation.std, in->c);
    if (d->model->card)
        put_card(out, f, &w, d->model->card);
    ls_json_writer_fini(&w);
}
