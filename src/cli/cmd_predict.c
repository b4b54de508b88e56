/* trainer predict RUN IMAGE… | --rows A:B */
#include "base/error.h"
#include "base/host.h"
#include "cli/trained.h"
#include "data/image.h"
#include "json/writer.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char help[] =
    "usage: trainer predict RUN IMAGE… [options]\n"
    "       trainer predict RUN --rows A:B [options]\n"
    "\n"
    "Says which class a trained model sees in images, and with which probability.\n"
    "\n" CLI_TRAINED_HELP
    "  IMAGE            a JPEG, PNG, PGM or PPM file of the size that the model reads\n"
    "  --rows A:B       rows A to B − 1 of the test images of the run's data, counted from 0\n"
    "  --train          of its training images\n"
    "  --data DIR       the directory with the data's files\n"
    "  --devices LIST   auto, cpu, cpu:4, … (default: the config's)\n"
    "  --json           one JSON object a line, with all logits\n"
    "  --help           this text\n";

/* What is predicted. */
typedef struct input {
    const ls_trained *t;
    char **file;    /* NULL: rows of the data */
    uint32_t first; /* row */
    uint32_t rows;
    uint8_t *images;
    union { /* NULL: unknown */
        int32_t *labels;
        float *targets; /* of a model that learnt vectors */
    };
} input;

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
        return ls_fail(err, LS_EINVAL, "--rows %.60s: there are only %u rows", text,
                       (unsigned)rows);
    *first = (uint32_t)a;
    *count = (uint32_t)(b - a);
    return LS_OK;
}

static int read_rows(input *in, const cli_trained_args *a, ls_error *err)
{
    const ls_dataset *data = in->t->data[a->train ? LS_TRAIN : LS_TEST];
    const ls_host *host = in->t->host;
    const uint32_t all = ls_dataset_describe(data)->rows;
    int status = parse_rows(a->rows, all, &in->first, &in->rows, err);
    if (status)
        return status;
    uint32_t *row = ls_alloc_array(host, in->rows, sizeof *row);
    in->images = ls_alloc_array(host, in->rows, ls_dataset_image_bytes(data));
    in->labels = ls_alloc_array(host, in->rows, ls_dataset_target_bytes(data));
    if (!row || !in->images || !in->labels)
        status = ls_fail(err, LS_ENOMEM, "out of memory for %u rows", (unsigned)in->rows);
    for (uint32_t i = 0; status == LS_OK && i < in->rows; i++)
        row[i] = in->first + i;
    if (status == LS_OK)
        status = ls_dataset_read(data, row, in->rows, in->images, in->labels, err);
    ls_free(host, row);
    return status;
}

static int read_files(input *in, const cli_trained_args *a, ls_error *err)
{
    const ls_shape *shape = &in->t->model->input;
    const size_t bytes = (size_t)shape->c * (size_t)shape->h * (size_t)shape->w;
    int status = LS_OK;
    if (in->t->config.preprocessing.floats)
        return ls_fail(
            err, LS_EUNSUPPORTED,
            "%.300s: the model reads rows of floats, and image files hold bytes; name rows "
            "of its data: --rows 0:10",
            in->t->weights_path);
    in->file = a->rest;
    in->rows = (uint32_t)a->rest_count;
    in->images = ls_alloc_array(in->t->host, in->rows, bytes);
    if (!in->images)
        return ls_fail(err, LS_ENOMEM, "out of memory for %u images", (unsigned)in->rows);
    for (uint32_t i = 0; status == LS_OK && i < in->rows; i++)
        status = ls_image_read(in->images + i * bytes, shape->c, shape->h, shape->w, in->file[i],
                               in->t->host, err);
    return status;
}

/* ---- what came out -------------------------------------------------------------------------- */

/* The first largest logit, as in training, and its softmax. */
static int best_class(const float *logits, int classes, double *probability)
{
    int best = 0;
    double sum = 0;
    for (int i = 1; i < classes; i++)
        if (logits[i] > logits[best])
            best = i;
    for (int i = 0; i < classes; i++)
        sum += exp((double)logits[i] - (double)logits[best]);
    *probability = 1 / sum;
    return best;
}

static bool learnt_vectors(const ls_trained *t)
{
    return t->config.loss &&
           t->config.loss->vectors; /* NULL: nothing says so, and it was classes */
}

/* What a model of vectors gives for a row; bits as probabilities. */
static float output_of(const ls_trained *t, const float *logits, int i)
{
    return t->config.loss && t->config.loss->bits ? (float)(1 / (1 + exp(-(double)logits[i])))
                                                  : logits[i];
}

static void print_class(const char *before, const ls_trained *t, int label)
{
    const char *name = ls_class_name(t, label);
    printf("%s%d%s%s", before, label, name ? " " : "", name ? name : "");
}

static void print_vector(const input *in, uint32_t i, const float *logits)
{
    const int n = in->t->model->classes;
    for (int k = 0; k < n; k++)
        printf("%s%g", k ? ", " : ": ", (double)output_of(in->t, logits, k));
    for (int k = 0; k < n && in->targets; k++)
        printf("%s%g", k ? ", " : "; its targets are ",
               (double)in->targets[(size_t)i * (size_t)n + (size_t)k]);
    putchar('\n');
}

static void print_line(const input *in, uint32_t i, const float *logits)
{
    double probability;
    const int best = best_class(logits, in->t->model->classes, &probability);
    if (in->file)
        printf("%s", in->file[i]);
    else
        printf("row %u", (unsigned)(in->first + i));
    if (learnt_vectors(in->t)) {
        print_vector(in, i, logits);
        return;
    }
    print_class(": ", in->t, best);
    printf(" (%.3f)", probability);
    if (in->labels && in->labels[i] != best)
        print_class(", but its label is ", in->t, in->labels[i]);
    putchar('\n');
}

static void put_class(ls_json_writer *w, const input *in, uint32_t i, const float *logits)
{
    double probability;
    const int best = best_class(logits, in->t->model->classes, &probability);
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

static void put_vector(ls_json_writer *w, const input *in, uint32_t i, const float *logits)
{
    const int n = in->t->model->classes;
    ls_json_open_array(w, "outputs");
    for (int k = 0; k < n; k++)
        ls_json_put_float(w, NULL, output_of(in->t, logits, k));
    ls_json_close(w);
    if (in->targets)
        put_floats(w, "targets", in->targets + (size_t)i * (size_t)n, n);
}

static void print_json(const input *in, uint32_t i, const float *logits)
{
    ls_json_writer writer, *w = &writer;
    ls_json_writer_init(w, 0, in->t->host);
    ls_json_open_object(w, NULL);
    if (in->file)
        ls_json_put_string(w, "file", in->file[i]);
    else
        ls_json_put_uint(w, "row", in->first + i);
    (learnt_vectors(in->t) ? put_vector : put_class)(w, in, i, logits);
    put_floats(w, "logits", logits, in->t->model->classes);
    ls_json_close(w);
    cli_put_json(w);
}

static void print_all(const input *in, const float *logits, bool json)
{
    for (uint32_t i = 0; i < in->rows; i++)
        (json ? print_json : print_line)(in, i, logits + (size_t)i * (size_t)in->t->model->classes);
}

/* ---- the command ---------------------------------------------------------------------------- */

static int predict(input *in, const cli_trained_args *a, const ls_registry *registry, ls_error *err)
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
    int status = ls_predict(&sum, logits, &d, err);
    if (status == LS_OK)
        print_all(in, logits, a->json);
    ls_free(host, logits);
    return status;
}

static int run(const ls_trained *t, const cli_trained_args *a, const ls_registry *registry)
{
    ls_error err;
    input in = {.t = t};
    int status = a->rows ? read_rows(&in, a, &err) : read_files(&in, a, &err);
    if (status == LS_OK)
        status = predict(&in, a, registry, &err);
    ls_free(t->host, in.images);
    ls_free(t->host, in.labels);
    return status ? cli_fail(status, err.text) : cli_flush();
}

static int check(cli_trained_args *a)
{
    a->needs_data = a->rows != NULL;
    if (!a->rows && a->rest_count == 0)
        return cli_usage(a->verb, "of what? Name image files, or rows: --rows 0:10", "");
    if (a->rows && a->rest_count > 0)
        return cli_usage(a->verb, "either --rows or files, not both: ", a->rest[0]);
    return 0;
}

const cli_trained_verb cli_predict = {"predict", "jtrdn", help, check, run};
