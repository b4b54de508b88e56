/* SPDX-License-Identifier: MIT */
/* trainer predict RUN INPUT… | --rows A:B: predicts files, or rows of the run's data. */
#include "base/error.h"
#include "base/host.h"
#include "base/plural.h"
#include "cli/verbs.h"
#include "model/predictions.h"
#include "model/wrong.h"
#include "store/durable.h"
#include "json/writer.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char help[] =
    "usage: {} predict RUN|FILE INPUT… [options]\n"
    "       {} predict RUN --rows A:B [options]\n"
    "\n"
    "Predicts rows with a trained model: the class and its probability, or the value. The\n"
    "rows are prepared as the training rows were.\n"
    "\n" CLI_TRAINED_HELP
    "  INPUT            a picture (JPEG, PNG, BMP, WebP, PGM, PPM) of any size, or a folder\n"
    "                   of them; a .csv file, whose columns may be in any order and may\n"
    "                   include others; an .npy file; - for a table, an array or a picture on\n"
    "                   standard input. A picture that cannot be read, and a row of a table\n"
    "                   with a value that the model does not know, has no prediction; it is\n"
    "                   named, and the exit status is 65\n"
    "  --to FILE        writes FILE.csv or FILE.jsonl: row or file, prediction (of several\n"
    "                   values a column for each), the probability of each class, the line of a\n"
    "                   table, and of rows of the run's data the label\n"
    "  --skip-broken    leaves out and counts what has no prediction, and rows with a text in a\n"
    "                   column of numbers; the exit status is 0. For pictures it is the default\n"
    "                   if the run's config has data.skip_broken\n"
    "  --rows A:B       rows A to B − 1 of the test rows of the run's data, counted from 0\n"
    "  --train          with --rows: takes them from the training rows\n"
    "  --data WHERE     with --rows: takes them from other data, as `{} eval` does\n"
    "  --devices LIST   auto, cpu, cpu:4, … (default: the config's)\n"
    "  --json           prints one JSON object for each row, with all logits\n"
    "  --help           this text\n";

/* ---- which rows ----------------------------------------------------------------------------- */

static int parse_rows(const char *text, uint32_t rows, uint32_t *first, uint32_t *count,
                      ls_error *err)
{
    char *end;
    const unsigned long a = strtoul(text, &end, 10);
    const bool has_a = end != text && *end == ':' && text[0] != '-';
    const char *second = has_a ? end + 1 : text;
    const unsigned long b = strtoul(second, &end, 10);
    if (!has_a || end == second || *end || second[0] == '-' || a >= b)
        return ls_fail(err, LS_EINVAL, "--rows %.60s: expected A:B with A < B, such as 0:10", text);
    if (b > rows)
        return ls_fail(err, LS_EINVAL, "--rows %.60s: there %s only %u %s", text,
                       ls_plural(rows, "is", "are"), (unsigned)rows,
                       ls_plural(rows, "row", "rows"));
    *first = (uint32_t)a;
    *count = (uint32_t)(b - a);
    return LS_OK;
}

static int read_rows(ls_trained_rows *in, const cli_trained_args *a, ls_error *err)
{
    uint32_t first = 0, count = 0;
    int status = parse_rows(a->rows, ls_trained_data(in->t, a->train)->rows, &first, &count, err);
    return status ? status : ls_trained_rows_of_data(in, a->train, first, count, count, err);
}

enum { STDIN_MOST = 1 << 30 };

static int read_stdin(char **out, size_t *count, const ls_host *host, ls_error *err)
{
    size_t capacity = 0;
    for (*count = 0; *count < STDIN_MOST;) {
        char *more = ls_grown(host, *out, *count, &capacity, 1);
        if (!more)
            return ls_fail(err, LS_ENOMEM, "standard input: out of memory for it");
        *out = more;
        const size_t got = fread(more + *count, 1, capacity - *count, stdin);
        if (got == 0)
            return LS_OK;
        *count += got;
    }
    return ls_fail(err, LS_EDATA, "standard input: expected less than %d bytes", STDIN_MOST);
}

static int read_standard_input(ls_trained_rows *r, ls_error *err)
{
    char *bytes = NULL;
    size_t count;
    int status = read_stdin(&bytes, &count, r->t->host, err);
    if (status == LS_OK)
        status = ls_trained_rows_read(r, "standard input", bytes, count, err);
    ls_free(r->t->host, bytes);
    return status;
}

static int read_inputs(ls_trained_rows *r, const cli_trained_args *a, ls_error *err)
{
    const bool standard = strcmp(a->rest[0], "-") == 0;
    if (standard && a->rest_count > 1)
        return ls_fail(err, LS_EINVAL,
                       "-: one table or array at a time; do not know what to do with %.100s",
                       a->rest[1]);
    const int status = standard ? read_standard_input(r, err)
                                : ls_trained_rows_open(r, a->rest, a->rest_count, err);
    if (r->turned)
        cli_say("%u %s orientation says", (unsigned)r->turned,
                ls_plural(r->turned, "picture was turned as its EXIF",
                          "pictures were turned as their EXIF"));
    return status;
}

/* Writes the message about the pictures that could not be read. If several arguments named them,
 * the message says which is the first. */
static void tell_broken(const ls_trained_rows *in, const cli_trained_args *a, ls_error *err)
{
    const bool one = a->rest_count == 1;
    const unsigned broken = in->broken;
    const char *it = ls_plural(broken, "it", "them");
    uint32_t first = 0;
    while (!in->why[first])
        first++;
    ls_fail(err, LS_EDATA,
            "%.300s%s%u of %u pictures %s broken and %s no prediction%s%.300s; mend or remove %s, "
            "or leave %s out: --skip-broken",
            one ? in->desc.folder : "", one ? ": " : "", broken, (unsigned)in->rows,
            ls_plural(broken, "is", "are"), ls_plural(broken, "has", "have"),
            one ? "" : ls_plural(broken, ": ", ", the first is "), one ? "" : in->file[first].path,
            it, it);
}

/* Writes the message about the rows with values that the model does not know or cannot read. */
static void tell_unknown(const ls_trained_rows *in, ls_error *err)
{
    const unsigned rows = in->broken;
    ls_fail(err, LS_EDATA, "%.100s: %u of %u rows %s no prediction, because %s: %s", in->source,
            rows, (unsigned)in->rows, ls_plural(rows, "has", "have"), in->reason, in->places);
}

/* Prints the number of rows without a prediction, if there are any, and returns the exit code of
 * the command. */
static int end_with_broken(const ls_trained_rows *in, const cli_trained_args *a)
{
    ls_error err;
    const unsigned broken = in->broken;
    if (broken && in->skip_broken && in->data)
        cli_say("%u of %u rows %s left out, because %s: %s", broken, (unsigned)in->rows,
                ls_plural(broken, "was", "were"), in->reason, in->places);
    else if (broken && in->skip_broken)
        cli_say("%u of %u pictures %s broken and %s left out", broken, (unsigned)in->rows,
                ls_plural(broken, "is", "are"), ls_plural(broken, "was", "were"));
    if (!broken || in->skip_broken)
        return cli_flush();
    const int code = cli_flush();
    in->data ? tell_unknown(in, &err) : tell_broken(in, a, &err);
    return code ? code : cli_fail(LS_EDATA, err.text);
}

/* ---- as text --------------------------------------------------------------------------------- */

/* Prints values, each after its name. `name` NULL: they have none. */
static void print_values(const char *before, const char *const *name, const double *value,
                         int count)
{
    for (int k = 0; k < count; k++)
        printf("%s%s%s%.*g", k ? ", " : before, name ? name[k] : "", name ? " " : "",
               cli_digits(value[k], 6), value[k]);
}

static void print_line(const ls_predictions *p, const ls_predicted *r)
{
    const ls_trained *t = p->rows->t;
    if (r->file)
        printf("%s", r->file);
    else
        printf("row %u", (unsigned)r->number);
    if (r->why) {
        printf(": no prediction: %s", r->why);
    } else if (p->values) {
        print_values(": ", p->named ? p->name : NULL, r->output, p->outputs);
        if (r->target)
            print_values("; its targets are ", NULL, r->target, p->targets);
    } else {
        cli_class_print(": ", t, r->best);
        printf(" (%.3f)", r->probability);
        if (r->label >= 0 && r->label != r->best)
            cli_class_print(", but its label is ", t, r->label);
    }
    if (r->line && !r->why) /* the message about a row without a prediction has the line */
        printf("; line %u", (unsigned)r->line);
    putchar('\n');
}

/* ---- as JSON --------------------------------------------------------------------------------- */

/* Whether the value of an output is that of a float, which then is written with a float's digits.
 */
static bool is_float(double value)
{
    return (double)(float)value == value;
}

static void put_number(ls_json_writer *w, const char *key, double value)
{
    if (is_float(value))
        ls_json_put_float(w, key, (float)value);
    else
        ls_json_put_double(w, key, value);
}

static void put_numbers(ls_json_writer *w, const char *key, const double *value, int count)
{
    ls_json_open_array(w, key);
    for (int i = 0; i < count; i++)
        put_number(w, NULL, value[i]);
    ls_json_close(w);
}

/* Begins the object of a row with its name. Returns whether the row has a prediction; if not, the
 * object says why. */
static bool begin_object(ls_json_writer *w, const ls_predicted *r)
{
    ls_json_open_object(w, NULL);
    if (r->file)
        ls_json_put_string(w, "file", r->file);
    else
        ls_json_put_uint(w, "row", r->number);
    if (r->why)
        ls_json_put_string(w, "error", r->why);
    else if (r->line)
        ls_json_put_uint(w, "line", r->line);
    return !r->why;
}

static void put_outputs(ls_json_writer *w, const ls_predictions *p, const ls_predicted *r)
{
    if (p->values) {
        put_numbers(w, "outputs", r->output, p->outputs);
        if (r->target)
            put_numbers(w, "targets", r->target, p->targets);
    } else {
        const char *name = ls_class_name(p->rows->t, r->best);
        ls_json_put_int(w, "class", r->best);
        if (name)
            ls_json_put_string(w, "name", name);
        ls_json_put_double(w, "probability", r->probability);
        if (r->label >= 0)
            ls_json_put_int(w, "label", r->label);
        if (r->label >= 0 && name)
            ls_json_put_string(w, "label_name", p->name[r->label]);
    }
    put_numbers(w, "logits", r->logits, p->outputs);
}

static void print_json(const ls_predictions *p, const ls_predicted *r)
{
    ls_json_writer w;
    ls_json_writer_init(&w, 0, p->rows->t->host);
    if (begin_object(&w, r))
        put_outputs(&w, p, r);
    ls_json_close(&w);
    cli_put_json(&w);
}

static void print_all(ls_predictions *p, bool json)
{
    for (uint32_t i = 0; i < p->rows->rows; i++) {
        const ls_predicted r = ls_predictions_at(p, i);
        /* a picture that cannot be read was named before */
        if (r.why && (p->rows->skip_broken || (!json && r.file)))
            continue;
        if (json)
            print_json(p, &r);
        else
            print_line(p, &r);
    }
}

/* ---- into a file ----------------------------------------------------------------------------- */

/* Returns whether the prediction of a row is one class or one number, which then is in the column
 * `prediction`. */
static bool is_one(const ls_predictions *p)
{
    return !p->values || p->outputs == 1;
}

/* Returns the number of columns with an output each: a probability, a quantile or one of several
 * values. */
static int output_columns(const ls_predictions *p)
{
    return p->values && p->outputs == 1 && !p->named ? 0 : p->outputs;
}

static bool has_files(const ls_trained_rows *r)
{
    return r->rows > 0 && ls_trained_rows_origin(r, 0).file;
}

/* Returns whether it is known on which lines of a table the rows are. */
static bool has_lines(const ls_trained_rows *r)
{
    return r->rows > 0 && ls_trained_rows_origin(r, 0).line > 0;
}

static void put_table_header(ls_buffer *b, const ls_predictions *p)
{
    char name[300];
    ls_buffer_put(b, has_files(p->rows) ? "file" : "row");
    ls_buffer_put(b, is_one(p) ? ",prediction" : "");
    for (int i = 0; i < output_columns(p); i++) {
        snprintf(name, sizeof name, "%s%s",
                 p->named    ? ""
                 : p->values ? "value_"
                             : "p_",
                 p->name[i]);
        ls_put_csv_field(b, ",", name);
    }
    ls_buffer_put(b, has_lines(p->rows) ? ",line" : "");
    if (p->rows->labels && p->values && p->targets > 1)
        for (int k = 0; k < p->targets; k++)
            ls_buffer_format(b, ",label_%d", k);
    else
        ls_buffer_put(b, p->rows->labels ? ",label" : "");
    ls_buffer_put(b, "\n");
}

/* Appends an output: a probability with the digits of a float, a value with all that it has. */
static void put_output(ls_buffer *b, const ls_predictions *p, double value)
{
    char text[LS_SHORTEST];
    ls_value_text(text, p->values ? value : (double)(float)value);
    ls_buffer_put(b, text);
}

/* Appends the label or the targets of a row. */
static void put_label(ls_buffer *b, const ls_predictions *p, const ls_predicted *r)
{
    if (!p->values)
        ls_put_csv_field(b, ",", r->label >= 0 ? p->name[r->label] : "");
    for (int k = 0; p->values && k < p->targets; k++) {
        char text[LS_SHORTEST];
        ls_shortest(text, r->target[k], false);
        ls_buffer_format(b, ",%s", text);
    }
}

static void put_table_row(ls_buffer *b, const ls_predictions *p, const ls_predicted *r)
{
    if (r->file)
        ls_put_csv_field(b, "", r->file);
    else
        ls_buffer_format(b, "%u", (unsigned)r->number);
    ls_buffer_put(b, is_one(p) ? "," : "");
    if (!r->why && !p->values) /* a row without a prediction has empty fields */
        ls_put_csv_field(b, "", p->name[r->best]);
    else if (!r->why && is_one(p))
        put_output(b, p, r->output[0]);
    for (int k = 0; k < output_columns(p); k++) {
        ls_buffer_put(b, ",");
        if (!r->why)
            put_output(b, p, r->output[k]);
    }
    if (has_lines(p->rows))
        ls_buffer_format(b, ",%u", (unsigned)r->line);
    if (p->rows->labels)
        put_label(b, p, r);
    ls_buffer_put(b, "\n");
}

/* Writes the outputs with their names: probabilities with the digits of floats, values with all
 * that they have. */
static void put_named(ls_json_writer *w, const char *key, const ls_predictions *p,
                      const ls_predicted *r)
{
    ls_json_open_object(w, key);
    for (int k = 0; k < p->outputs; k++)
        put_number(w, p->name[k], p->values ? r->output[k] : (double)(float)r->output[k]);
    ls_json_close(w);
}

static void put_prediction(ls_json_writer *w, const ls_predictions *p, const ls_predicted *r)
{
    if (!p->values) {
        ls_json_put_string(w, "prediction", p->name[r->best]);
        ls_json_put_double(w, "probability", r->probability);
        if (r->label >= 0)
            ls_json_put_string(w, "label", p->name[r->label]);
        put_named(w, "probabilities", p, r);
    } else if (p->named) {
        put_named(w, "prediction", p, r);
    } else if (!is_one(p)) {
        put_numbers(w, "prediction", r->output, p->outputs);
    } else {
        put_number(w, "prediction", r->output[0]);
    }
    if (p->values && r->target)
        put_numbers(w, "label", r->target, p->targets);
}

static void put_line_row(ls_buffer *b, ls_json_writer *w, const ls_predictions *p,
                         const ls_predicted *r)
{
    ls_json_writer_reset(w);
    if (begin_object(w, r))
        put_prediction(w, p, r);
    ls_json_close(w);
    const char *line = ls_json_writer_text(w, NULL, NULL);
    b->failed |= !line;
    ls_buffer_put(b, line ? line : "");
    ls_buffer_put(b, "\n");
}

/* Prints the name of the file that was written, and how many rows or pictures it predicts. */
static void say_written(const ls_trained_rows *in, const char *to)
{
    const unsigned rows = in->rows - in->broken;
    cli_say("%s: %u %s predicted with %s", to, rows,
            in->file ? ls_plural(rows, "picture", "pictures") : ls_plural(rows, "row", "rows"),
            in->t->weights_path);
}

static int write_to(ls_predictions *p, const char *to, ls_error *err)
{
    const ls_trained_rows *in = p->rows;
    const bool lines = ls_path_ends_with(to, ".jsonl");
    ls_buffer text;
    ls_json_writer w;
    ls_buffer_init(&text, in->t->host);
    ls_json_writer_init(&w, 0, in->t->host);
    if (!lines)
        put_table_header(&text, p);
    for (uint32_t i = 0; i < in->rows; i++) {
        const ls_predicted r = ls_predictions_at(p, i);
        if (r.why && in->skip_broken)
            continue;
        if (lines)
            put_line_row(&text, &w, p, &r);
        else
            put_table_row(&text, p, &r);
    }
    int status = ls_buffer_status(&text, err);
    if (status == LS_OK)
        status = ls_write_file(to, text.text, text.length, in->t->host, err);
    if (status == LS_OK)
        say_written(in, to);
    ls_json_writer_fini(&w);
    ls_buffer_fini(&text);
    return status;
}

/* ---- the command ---------------------------------------------------------------------------- */

static int predict(ls_trained_rows *in, const cli_trained_args *a, const ls_registry *registry,
                   ls_error *err)
{
    ls_predictions p;
    int status = ls_predictions_make(&p, in, registry, a->devices, err);
    if (status == LS_OK && a->to)
        status = write_to(&p, a->to, err);
    else if (status == LS_OK)
        print_all(&p, a->json);
    ls_predictions_free(&p);
    return status;
}

static int run(const ls_trained *t, const cli_trained_args *a, const ls_registry *registry)
{
    ls_error err;
    ls_trained_rows in = {.t = t, .skip_broken = a->skip_broken};
    int status = a->rows ? read_rows(&in, a, &err) : read_inputs(&in, a, &err);
    if (status == LS_OK)
        status = predict(&in, a, registry, &err);
    const int code = status ? cli_fail_files(status, err.text) : end_with_broken(&in, a);
    ls_trained_rows_close(&in);
    return code;
}

static int check(cli_trained_args *a)
{
    a->needs_data = a->rows != NULL;
    if (!a->rows && a->rest_count == 0)
        return cli_usage(a->verb, "expected pictures, a .csv or an .npy file, or rows: --rows 0:10",
                         "");
    if (a->rows && a->rest_count > 0)
        return cli_usage(a->verb, "either --rows or files, not both: ", a->rest[0]);
    if (a->to && !ls_path_ends_with(a->to, ".csv") && !ls_path_ends_with(a->to, ".jsonl"))
        return cli_usage(a->verb, "--to: expected FILE.csv or FILE.jsonl, found ", a->to);
    return 0;
}

const cli_trained_verb cli_predict = {"predict", "jtrdnok", help, check, run};
