/* trainer predict RUN INPUT… | --rows A:B: predicts files, or rows of the run's data. */
#include "base/error.h"
#include "base/host.h"
#include "base/plural.h"
#include "cli/verbs.h"
#include "model/outputs.h"
#include "model/predict.h"
#include "model/rows.h"
#include "store/durable.h"
#include "json/writer.h"

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
    "                   standard input. If a picture cannot be read, it is named and has no\n"
    "                   prediction, and the exit status is 65\n"
    "  --to FILE        writes FILE.csv or FILE.jsonl: row or file, prediction, and the\n"
    "                   probability of each class\n"
    "  --skip-broken    leaves out and counts pictures that cannot be read; the exit status\n"
    "                   is 0. It is the default if the run's config has data.skip_broken\n"
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

static int read_rows(ls_rows *in, const cli_trained_args *a, ls_error *err)
{
    uint32_t first = 0, count = 0;
    const ls_dataset *data = in->t->data[a->train ? LS_TRAIN : LS_TEST];
    int status = parse_rows(a->rows, ls_dataset_describe(data)->rows, &first, &count, err);
    return status ? status : ls_rows_of_data(in, a->train, first, count, err);
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

static int read_standard_input(ls_rows *r, ls_error *err)
{
    char *bytes = NULL;
    size_t count;
    int status = read_stdin(&bytes, &count, r->t->host, err);
    if (status == LS_OK)
        status = ls_rows_read(r, "standard input", bytes, count, err);
    ls_free(r->t->host, bytes);
    return status;
}

static int read_inputs(ls_rows *r, const cli_trained_args *a, ls_error *err)
{
    const bool standard = strcmp(a->rest[0], "-") == 0;
    if (standard && a->rest_count > 1)
        return ls_fail(err, LS_EINVAL,
                       "-: one table or array at a time; do not know what to do with %.100s",
                       a->rest[1]);
    const int status =
        standard ? read_standard_input(r, err) : ls_rows_open(r, a->rest, a->rest_count, err);
    if (r->turned)
        cli_say("%u %s orientation says", (unsigned)r->turned,
                ls_plural(r->turned, "picture was turned as its EXIF",
                          "pictures were turned as their EXIF"));
    return status;
}

/* ---- pictures that cannot be read ------------------------------------------------------------ */

static const char *why_not(const ls_rows *in, uint32_t i)
{
    return in->why ? in->why[i] : NULL;
}

/* Prints the number of pictures that could not be read, if there are any, and returns the exit code
 * of the command. */
static int end_with_broken(const ls_rows *in)
{
    ls_error err;
    const unsigned broken = in->broken, rows = in->rows;
    if (broken && in->skip_broken)
        cli_say("%u of %u pictures %s broken and %s left out", broken, rows,
                ls_plural(broken, "is", "are"), ls_plural(broken, "was", "were"));
    if (!broken || in->skip_broken)
        return cli_flush();
    const int code = cli_flush();
    ls_fail(&err, LS_EDATA,
            "%.300s: %u of %u pictures %s broken and %s no prediction; mend or remove %s, or leave "
            "%s out: --skip-broken",
            in->desc.folder, broken, rows, ls_plural(broken, "is", "are"),
            ls_plural(broken, "has", "have"), ls_plural(broken, "it", "them"),
            ls_plural(broken, "it", "them"));
    return code ? code : cli_fail(LS_EDATA, err.text);
}

static void print_broken(const ls_rows *in, uint32_t i)
{
    ls_json_writer w;
    ls_json_writer_init(&w, 0, in->t->host);
    ls_json_open_object(&w, NULL);
    ls_json_put_string(&w, "file", in->file[i].path);
    ls_json_put_string(&w, "error", in->why[i]);
    ls_json_close(&w);
    cli_put_json(&w);
}

/* ---- results --------------------------------------------------------------------------------- */

static bool learnt_vectors(const ls_trained *t)
{
    /* if the loss is not known, the model is treated as one that predicts classes */
    return t->config.loss && t->config.loss->vectors;
}

/* Returns output `i` of a model that predicts values. If the loss is "bce", which learns yes/no
 * targets, the output is a probability. */
static float output_of(const ls_trained *t, const float *logits, int i)
{
    return (float)ls_output_value(t->config.loss, logits[i]);
}

static void print_vector(const ls_rows *in, uint32_t i, const float *logits)
{
    const int n = in->t->model->classes;
    for (int k = 0; k < n; k++)
        printf("%s%g", k ? ", " : ": ", (double)output_of(in->t, logits, k));
    for (int k = 0; k < n && in->targets; k++)
        printf("%s%g", k ? ", " : "; its targets are ",
               (double)in->targets[(size_t)i * (size_t)n + (size_t)k]);
    putchar('\n');
}

static void print_line(const ls_rows *in, uint32_t i, const float *logits)
{
    double probability;
    const int best = ls_best_class(logits, in->t->model->classes, &probability);
    if (in->file)
        printf("%s", in->file[i].path);
    else
        printf("row %u", (unsigned)(in->first + i));
    if (learnt_vectors(in->t)) {
        print_vector(in, i, logits);
        return;
    }
    cli_class_print(": ", in->t, best);
    printf(" (%.3f)", probability);
    if (in->labels && in->labels[i] != best)
        cli_class_print(", but its label is ", in->t, in->labels[i]);
    putchar('\n');
}

static void put_class(ls_json_writer *w, const ls_rows *in, uint32_t i, const float *logits)
{
    double probability;
    const int best = ls_best_class(logits, in->t->model->classes, &probability);
    ls_json_put_int(w, "class", best);
    if (ls_class_name(in->t, best))
        ls_json_put_string(w, "name", ls_class_name(in->t, best));
    ls_json_put_double(w, "probability", probability);
    if (in->labels)
        ls_json_put_int(w, "label", in->labels[i]);
}

static void put_floats(ls_json_writer *w, const char *key, const float *value, int count)
{
    ls_json_open_array(w, key);
    for (int i = 0; i < count; i++)
        ls_json_put_float(w, NULL, value[i]);
    ls_json_close(w);
}

static void put_vector(ls_json_writer *w, const ls_rows *in, uint32_t i, const float *logits)
{
    const int n = in->t->model->classes;
    ls_json_open_array(w, "outputs");
    for (int k = 0; k < n; k++)
        ls_json_put_float(w, NULL, output_of(in->t, logits, k));
    ls_json_close(w);
    if (in->targets)
        put_floats(w, "targets", in->targets + (size_t)i * (size_t)n, n);
}

static void print_json(const ls_rows *in, uint32_t i, const float *logits)
{
    ls_json_writer writer, *w = &writer;
    ls_json_writer_init(w, 0, in->t->host);
    ls_json_open_object(w, NULL);
    if (in->file)
        ls_json_put_string(w, "file", in->file[i].path);
    else
        ls_json_put_uint(w, "row", in->first + i);
    if (learnt_vectors(in->t))
        put_vector(w, in, i, logits);
    else
        put_class(w, in, i, logits);
    put_floats(w, "logits", logits, in->t->model->classes);
    ls_json_close(w);
    cli_put_json(w);
}

static void print_all(const ls_rows *in, const float *logits, bool json)
{
    for (uint32_t i = 0; i < in->rows; i++) {
        const float *of_row = logits + (size_t)i * (size_t)in->t->model->classes;
        if (why_not(in, i)) {
            if (json && !in->skip_broken)
                print_broken(in, i);
        } else if (json)
            print_json(in, i, of_row);
        else
            print_line(in, i, of_row);
    }
}

/* ---- into a file ----------------------------------------------------------------------------- */

/* Computes the numbers that are written for a row: the probability of each class, or the predicted
 * values. */
static void outputs_of(const ls_rows *in, const float *logits, float *out)
{
    const int n = in->t->model->classes;
    if (!learnt_vectors(in->t))
        ls_softmax(out, logits, n);
    for (int i = 0; i < n && learnt_vectors(in->t); i++)
        out[i] = output_of(in->t, logits, i);
}

/* Appends a field, in quotes if RFC 4180 requires them. */
static void put_field(ls_buffer *b, const char *before, const char *text)
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

static const char *name_output(char out[64], const ls_rows *in, int i)
{
    const char *name = learnt_vectors(in->t) ? NULL : ls_class_name(in->t, i);
    snprintf(out, 64, "%d", i);
    return name ? name : out;
}

static void put_table_header(ls_buffer *b, const ls_rows *in)
{
    char number[64], name[300];
    const int n = in->t->model->classes;
    ls_buffer_put(b, in->file ? "file,prediction" : "row,prediction");
    for (int i = 0; i < n && !(learnt_vectors(in->t) && n == 1); i++) {
        snprintf(name, sizeof name, "%s%s", learnt_vectors(in->t) ? "value_" : "p_",
                 name_output(number, in, i));
        put_field(b, ",", name);
    }
    ls_buffer_put(b, "\n");
}

static void put_table_row(ls_buffer *b, const ls_rows *in, uint32_t i, const float *logits,
                          const float *out)
{
    char number[64];
    double p;
    const int n = in->t->model->classes;
    if (in->file)
        put_field(b, "", in->file[i].path);
    else
        ls_buffer_format(b, "%u", (unsigned)(in->first + i));
    if (why_not(in, i)) { /* a picture that cannot be read gets empty fields */
        const int fields = learnt_vectors(in->t) && n == 1 ? 1 : 1 + n;
        for (int k = 0; k < fields; k++)
            ls_buffer_put(b, ",");
        ls_buffer_put(b, "\n");
        return;
    }
    if (!learnt_vectors(in->t))
        put_field(b, ",", name_output(number, in, ls_best_class(logits, n, &p)));
    for (int k = 0; k < n && learnt_vectors(in->t); k++)
        ls_buffer_format(b, "%s%.9g", k ? " " : ",", (double)out[k]);
    for (int k = 0; k < n && !(learnt_vectors(in->t) && n == 1); k++)
        ls_buffer_format(b, ",%.9g", (double)out[k]);
    ls_buffer_put(b, "\n");
}

static void put_line_row(ls_json_writer *w, const ls_rows *in, uint32_t i, const float *logits,
                         const float *out)
{
    char number[64];
    double p;
    const int n = in->t->model->classes;
    ls_json_open_object(w, NULL);
    if (in->file)
        ls_json_put_string(w, "file", in->file[i].path);
    else
        ls_json_put_uint(w, "row", in->first + i);
    if (why_not(in, i)) {
        ls_json_put_string(w, "error", why_not(in, i));
    } else if (!learnt_vectors(in->t)) {
        ls_json_put_string(w, "prediction", name_output(number, in, ls_best_class(logits, n, &p)));
        ls_json_open_object(w, "probabilities");
        for (int k = 0; k < n; k++)
            ls_json_put_float(w, name_output(number, in, k), out[k]);
        ls_json_close(w);
    } else if (n == 1) {
        ls_json_put_float(w, "prediction", out[0]);
    } else {
        ls_json_open_array(w, "prediction");
        for (int k = 0; k < n; k++)
            ls_json_put_float(w, NULL, out[k]);
        ls_json_close(w);
    }
    ls_json_close(w);
}

/* Prints the name of the file that was written, and how many rows or pictures it predicts. */
static void say_written(const ls_rows *in, const char *to)
{
    const unsigned rows = in->rows - in->broken;
    cli_say("%s: %u %s predicted with %s", to, rows,
            in->file ? ls_plural(rows, "picture", "pictures") : ls_plural(rows, "row", "rows"),
            in->t->weights_path);
}

static int write_to(const ls_rows *in, const float *logits, const char *to, ls_error *err)
{
    const size_t n = (size_t)in->t->model->classes;
    const bool lines = ls_path_ends_with(to, ".jsonl");
    ls_buffer text;
    ls_buffer_init(&text, in->t->host);
    ls_json_writer w;
    float *out = ls_alloc_array(in->t->host, n, sizeof *out);
    ls_json_writer_init(&w, 0, in->t->host);
    if (!lines)
        put_table_header(&text, in);
    for (uint32_t i = 0; out && i < in->rows; i++) {
        const float *row = logits + i * n;
        if (why_not(in, i) && in->skip_broken)
            continue;
        outputs_of(in, row, out);
        if (!lines) {
            put_table_row(&text, in, i, row, out);
            continue;
        }
        ls_json_writer_reset(&w);
        put_line_row(&w, in, i, row, out);
        const char *line = ls_json_writer_text(&w, NULL, NULL);
        text.failed |= !line;
        ls_buffer_put(&text, line ? line : "");
        ls_buffer_put(&text, "\n");
    }
    int status = out && !text.failed
                     ? ls_write_file(to, text.text, text.length, in->t->host, err)
                     : ls_fail(err, LS_ENOMEM, "out of memory for %u rows", (unsigned)in->rows);
    if (status == LS_OK)
        say_written(in, to);
    ls_free(in->t->host, out);
    ls_json_writer_fini(&w);
    ls_buffer_fini(&text);
    return status;
}

/* Converts scaled target number `i` back to the number in the user's data. Because of rounding,
 * several numbers have the same scaled value; the function returns the one with the fewest
 * digits. */
static float target_in_data(const ls_prep *p, size_t i, float learnt)
{
    char text[32];
    double value = 0;
    for (int digits = 0; digits <= 16 && ls_prep_target(p, i, value) != learnt; digits++) {
        snprintf(text, sizeof text, "%.*g", digits + 1, ls_prep_output(p, i, learnt));
        value = strtod(text, NULL);
    }
    return (float)value;
}

/* ---- the command ---------------------------------------------------------------------------- */

static int predict(ls_rows *in, const cli_trained_args *a, const ls_registry *registry,
                   ls_error *err)
{
    ls_prediction sum;
    const ls_host *host = in->t->host;
    const ls_predict_desc d = {.trained = in->t,
                               .registry = registry,
                               .devices = a->devices,
                               .images = in->images,
                               .labels = in->labels,
                               .rows = in->rows};
    float *logits = ls_alloc_array(host, in->rows, sizeof *logits * (size_t)in->t->model->classes);
    if (!logits)
        return ls_fail(err, LS_ENOMEM, "out of memory for %u rows", (unsigned)in->rows);
    const size_t outputs = (size_t)in->rows * (size_t)in->t->model->classes;
    int status = ls_predict(&sum, logits, &d, err);
    ls_prep_unscale(in->t->card.prep, logits, outputs);
    for (size_t i = 0; i < outputs && learnt_vectors(in->t) && in->targets; i++)
        in->targets[i] = target_in_data(in->t->card.prep, i, in->targets[i]);
    if (status == LS_OK && a->to)
        status = write_to(in, logits, a->to, err);
    else if (status == LS_OK)
        print_all(in, logits, a->json);
    ls_free(host, logits);
    return status;
}

static int run(const ls_trained *t, const cli_trained_args *a, const ls_registry *registry)
{
    ls_error err;
    ls_rows in = {.t = t, .skip_broken = a->skip_broken};
    int status = a->rows ? read_rows(&in, a, &err) : read_inputs(&in, a, &err);
    if (status == LS_OK)
        status = predict(&in, a, registry, &err);
    const int code = status ? cli_fail(status, err.text) : end_with_broken(&in);
    ls_rows_close(&in);
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
