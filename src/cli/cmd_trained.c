/* The common part of the verbs that use a trained model (eval, export, predict), and the verbs eval
 * and export. */
#include "cli/verbs.h"

#include "base/clock.h"
#include "base/error.h"
#include "base/host.h"
#include "base/plural.h"
#include "checkpoint/run_dir.h"
#include "model/predict.h"
#include "nn/safetensors.h"
#include "onnx/onnx.h"

#include <getopt.h>
#include <math.h>
#include <string.h>
#include <sys/stat.h>

static int parse(cli_trained_args *a, const cli_trained_verb *verb, int argc, char **argv)
{
    const struct {
        char letter;
        cli_option option;
    } all[] = {
        {0, {CLI_LIST, "set", .list = &a->set, .most = CLI_SET_MAX}},
        {0, {CLI_TEXT, "config", .value = &a->config}},
        {'n', {CLI_TEXT, "data", .value = &a->new_data}},
        {'d', {CLI_TEXT, "devices", .value = &a->devices}},
        {'j', {CLI_FLAG, "json", .flag = &a->json}},
        {'t', {CLI_FLAG, "train", .flag = &a->train}},
        {0, {CLI_FLAG, "best", .flag = &a->best}},
        {'r', {CLI_TEXT, "rows", .value = &a->rows}},
        {'o', {CLI_TEXT, "to", .value = &a->to}},
        {'k', {CLI_FLAG, "skip-broken", .flag = &a->skip_broken}},
        {0, {CLI_HELP, "help", 'h', .text = verb->help}},
    };
    cli_option options[CLI_OPTIONS_MAX + 1] = {{0}};
    int count = 0;
    memset(a, 0, sizeof *a);
    a->verb = verb->name;
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        if (!all[i].letter || strchr(verb->letters, all[i].letter))
            options[count++] = all[i].option;
    const int problem = cli_read_options(verb->name, options, argc, argv);
    if (problem)
        return problem;
    if (optind == argc)
        return cli_usage(a->verb, "which run? Try a directory runs/<time>-<name>", "");
    a->run = argv[optind];
    a->rest = argv + optind + 1;
    a->rest_count = argc - optind - 1;
    return verb->check(a);
}

/* If the argument RUN is the word `latest`, finds the run for which it stands: the newest run that
 * has weights or a checkpoint, or with --best the newest run that has a checkpoint. Warnings about
 * newer runs go to stderr. The caller frees *out; NULL: RUN is a path. */
static int find_latest(char **out, const cli_trained_args *a, const ls_host *host, ls_error *err)
{
    struct stat st;
    *out = NULL;
    if (strcmp(a->run, "latest") != 0 || stat(a->run, &st) == 0)
        return LS_OK;
    return ls_run_latest(out, a->best ? LS_RUN_CHECKPOINT : LS_RUN_WEIGHTS, host, err);
}

int cli_trained_run(const cli_trained_verb *verb, int argc, char **argv,
                    const ls_registry *registry)
{
    char *latest;
    ls_error err;
    cli_trained_args a;
    cli_directories places;
    ls_trained t;
    cli_view view;
    cli_view_init(&view, true); /* only warnings of the log are printed */
    const ls_host host = {.size = sizeof host, .log = cli_view_log, .user = &view};
    int code = parse(&a, verb, argc, argv);
    if (code)
        return code;
    int status = find_latest(&latest, &a, &host, &err);
    if (status)
        return cli_fail(status, err.text);
    const ls_trained_options o = {
        .path = latest ? latest : a.run,
        .needs_data = a.needs_data,
        .best = a.best,
        .new_data = a.new_data,
        .training_rows = a.train,
        .trainer = cli_options(&places, a.config, &a.set, NULL, true, &host),
    };
    status = ls_trained_open(&t, &o, &err);
    if (status == LS_OK) {
        code = verb->run(&t, &a, registry);
        ls_trained_close(&t);
    }
    ls_free(NULL, latest);
    return status ? cli_fail(status, err.text) : code;
}

/* Checks that the run is the only argument of the command. */
static int check_alone(const cli_trained_args *a)
{
    return a->rest_count == 0
               ? 0
               : cli_usage(a->verb, "one run at a time; do not know what to do with ", a->rest[0]);
}

void cli_class_print(const char *before, const ls_trained *t, int label)
{
    char number[16];
    const char *name = ls_class_name(t, label);
    snprintf(number, sizeof number, "%d", label);
    const bool named = name && strcmp(name, number) != 0;
    printf("%s%s%s%s", before, number, named ? " " : "", named ? name : "");
}

/* ---- trainer eval RUN ------------------------------------------------------------------------ */

static const char eval_help[] =
    "usage: {} eval RUN [options]\n"
    "\n"
    "Evaluates a trained model on the test rows of its data: loss, accuracy, precision and\n"
    "recall of each class, or the metrics that metrics.names lists. The numbers are those of\n"
    "the run's own records, on any number of devices. With --json the confusion matrix is\n"
    "printed as well.\n"
    "\n" CLI_TRAINED_HELP
    "  --data WHERE     evaluates on other rows, prepared as the model says: a table, a\n"
    "                   folder of images, a directory of .npy files, a safetensors file; for\n"
    "                   data sets known by name, the directory of their files\n"
    "  --train          evaluates on the training rows\n"
    "  --devices LIST   auto, cpu, cpu:4, … (default: the config's)\n"
    "  --json           prints one JSON object\n"
    "  --help           this text\n";

/* Result of `trainer eval`. */
typedef struct outcome {
    const ls_dataset_info *data;
    const char *split;
    ls_measured measured;
    double seconds;
    ls_prediction sum;
    const char *weights;
    bool is_new;    /* the data is that of --data, not the run's own */
    bool unweighed; /* the loss was computed without the config's class_weights */
} outcome;

static void print_outcome(const outcome *o, const ls_host *host)
{
    ls_json_writer w;
    ls_json_writer_init(&w, 0, host);
    ls_json_open_object(&w, NULL);
    ls_json_put_string(&w, "weights", o->weights);
    ls_json_put_string(&w, "data", o->data->name);
    ls_json_put_string(&w, "split", o->split);
    ls_json_put_string(&w, "source", o->data->source);
    ls_json_put_bool(&w, "synthetic", o->data->synthetic);
    ls_json_put_uint(&w, "rows", o->data->rows);
    for (int m = 0; m < LS_METRICS; m++)
        if (m <= LS_METRIC_ACCURACY || !isnan(o->measured.value[m]))
            ls_json_put_double(&w, ls_metric_names[m], o->measured.value[m]);
    if (o->unweighed)
        ls_json_put_bool(&w, "class_weights", false);
    ls_json_put_double(&w, "seconds", o->seconds);
    ls_json_put_string(&w, "devices", o->sum.devices);
    for (const char *const *key = ls_class_keys; *key; key++)
        ls_measured_write(&w, *key, &o->measured);
    ls_json_close(&w);
    cli_put_json(&w);
}

/* Prints for each class its precision, its recall, and the wrong class that was predicted most
 * often for its rows. */
static void print_classes(const ls_trained *t, const ls_measured *m)
{
    const size_t n = (size_t)m->classes;
    if (n > 0)
        printf("  precision recall     rows  class, and what its rows are taken for most often\n");
    for (size_t k = 0; k < n; k++) {
        const uint32_t *row = m->confusion + k * n;
        size_t other = k == 0 && n > 1;
        uint64_t rows = row[k];
        for (size_t i = 0; i < n; i++) {
            if (i == k)
                continue;
            rows += row[i];
            if (other == k || row[i] > row[other])
                other = i;
        }
        printf("  %9.4f %6.4f %8llu  ", ls_precision_of(m, (int)k), ls_recall_of(m, (int)k),
               (unsigned long long)rows);
        cli_class_print("", t, (int)k);
        if (other != k && row[other] > 0) {
            printf("; %u as", (unsigned)row[other]);
            cli_class_print(" ", t, (int)other);
        }
        putchar('\n');
    }
}

static void print_for_people(const ls_trained *t, const outcome *o)
{
    const double *value = o->measured.value;
    printf("%s ", o->split);
    if (!isnan(value[LS_METRIC_ACCURACY]))
        printf("acc: %.4f, ", value[LS_METRIC_ACCURACY]);
    printf("loss %.4f%s", value[LS_METRIC_LOSS], o->unweighed ? " without class_weights" : "");
    for (int m = LS_METRIC_TOP5; m < LS_METRICS; m++)
        if (!isnan(value[m]))
            printf(", %s %.4f", ls_metric_names[m], value[m]);
    printf("; %u %s of %s%s on %s, %.1f s\n", (unsigned)o->data->rows,
           o->data->dtype == LS_ROW_U8 ? "images" : "rows",
           o->is_new ? o->data->source : o->data->name,
           o->data->synthetic ? " (synthetic data)" : "", o->sum.devices, o->seconds);
    print_classes(t, &o->measured);
}

/* Computes the metrics in `metrics`, including those that the run itself has not measured. */
static int measure(outcome *o, ls_predict_desc *d, const ls_dataset *data, unsigned metrics,
                   float *scores, ls_error *err)
{
    const ls_trained *t = d->trained;
    const ls_dataset_view view = ls_dataset_resident(data);
    const ls_scored_rows scored = {scores, view.labels, view.row, o->data->rows, t->model->classes};
    d->images = view.images;
    d->labels = view.labels;
    d->rows = o->data->rows;
    d->row_index = view.row;
    d->total_rows = view.rows;
    const uint64_t start = ls_now_ns();
    int status = ls_predict(&o->sum, scores, d, err);
    if (status)
        return status;
    o->seconds = (double)(ls_now_ns() - start) * 1e-9;
    const double unit = ls_prep_error_unit(t->card.prep);
    o->measured.value[LS_METRIC_LOSS] = o->sum.loss / d->rows * unit * unit;
    o->measured.value[LS_METRIC_ACCURACY] = t->config.loss->hits ? o->sum.correct / d->rows : NAN;
    status = ls_measure(&o->measured, metrics, &scored, t->host, err);
    o->measured.value[LS_METRIC_MAE] *= unit;
    return status;
}

/* Finds the class weights of the loss. The weights "balanced" are computed from the model's
 * training rows. If the training rows are not open, the weights are unknown, and the loss is
 * computed without them (o->unweighed). */
static int find_class_weights(float **out, outcome *o, const ls_trained *t, ls_error *err)
{
    const ls_dataset *train = o->is_new ? NULL : t->data[LS_TRAIN];
    *out = NULL;
    o->unweighed = cJSON_IsString(t->config.class_weights) && !train;
    if (!o->unweighed)
        return ls_config_class_weights(out, &t->config, train, t->model->classes, err);
    cli_say("class_weights \"balanced\" need the run's training rows, which are not read; "
            "the loss is computed without them");
    return LS_OK;
}

static int evaluate(const ls_trained *t, const cli_trained_args *a, const ls_registry *registry)
{
    ls_error err;
    const ls_dataset *data = t->data[a->train ? LS_TRAIN : LS_TEST];
    const int classes = t->model->classes;
    ls_predict_desc d = {
        .trained = t, .registry = registry, .devices = a->devices, .as_in_training = true};
    outcome o = {.data = ls_dataset_describe(data),
                 .weights = t->weights_path,
                 .is_new = a->new_data != NULL};
    o.split = o.is_new && !a->train ? "test" : o.data->split;
    float *scores = NULL, *class_weight = NULL;
    const unsigned metrics = ls_config_metrics_of(&t->config, o.data->rows, classes);
    int status = ls_measured_init(&o.measured, metrics, classes, t->host, &err);
    if (status == LS_OK && ls_metrics_need_scores(metrics)) {
        scores = ls_alloc_array(t->host, o.data->rows * sizeof *scores, (size_t)classes);
        status = scores ? LS_OK : ls_config_fail_scores(&err, &t->config, o.data->rows, classes);
    }
    if (status == LS_OK)
        status = find_class_weights(&class_weight, &o, t, &err);
    d.class_weight = class_weight;
    if (status == LS_OK)
        status = measure(&o, &d, data, metrics, scores, &err);
    if (status == LS_OK)
        a->json ? print_outcome(&o, t->host) : print_for_people(t, &o);
    ls_free(t->host, class_weight);
    ls_free(t->host, scores);
    ls_free(t->host, o.measured.confusion);
    return status ? cli_fail(status, err.text) : cli_flush();
}

static int check_eval(cli_trained_args *a)
{
    a->needs_data = true;
    return check_alone(a);
}

const cli_trained_verb cli_eval = {"eval", "jtdn", eval_help, check_eval, evaluate};

/* ---- trainer export RUN --to FILE ------------------------------------------------------------ */

static const char export_help[] =
    "usage: {} export RUN --to FILE.safetensors|FILE.onnx [options]\n"
    "\n"
    "Writes a trained model for other programs: its weights, named as PyTorch names them, or\n"
    "the whole network as ONNX (batch norm for inference, no dropout, any batch size; its\n"
    "inputs are rows as they are in the data).\n"
    "\n" CLI_TRAINED_HELP "  --to FILE        the file to write; its ending decides the format\n"
    "  --help           this text\n";

/* Writes the file `target`. The ending of `to` decides the format. */
static int save(const ls_trained *t, const char *to, const char *target, ls_error *err)
{
    if (ls_path_ends_with(to, ".safetensors"))
        return ls_safetensors_save(target, t->model, t->weights, t->host, err);
    ls_card card;
    int status = ls_card_parse(&card, t->weights_path, t->model->card, t->host, err);
    if (status)
        return status;
    const ls_onnx_desc d = {
        .prep = card.prep,
        .model = t->model,
        .weights = t->weights,
        .normalisation = t->config.preprocessing,
        .name = t->model->name[0] ? t->model->name : t->config.name,
        .loss = t->config.loss,
    };
    status = ls_onnx_save(target, &d, t->host, err);
    ls_card_fini(&card);
    return status;
}

static int export(const ls_trained *t, const cli_trained_args *a, const ls_registry *registry)
{
    const char *to = a->to;
    ls_error err;
    struct stat st;
    (void)registry;
    char target[LS_PATH_BYTES];
    int status = ls_follow_links(target, to, &err);
    if (status == LS_OK)
        status = save(t, to, target, &err);
    if (status)
        return cli_fail(status, err.text);
    const long long bytes = stat(to, &st) == 0 ? (long long)st.st_size : 0;
    if (ls_path_ends_with(to, ".onnx"))
        printf("%s: %lld bytes, ONNX IR version %d, opset %d; from %s\n", to, bytes,
               LS_ONNX_IR_VERSION, LS_ONNX_OPSET, t->weights_path);
    else
        printf("%s: %lld bytes, %d %s; from %s\n", to, bytes, t->model->params + t->model->stats,
               ls_plural((uint64_t)(t->model->params + t->model->stats), "tensor", "tensors"),
               t->weights_path);
    return cli_flush();
}

static int check_export(cli_trained_args *a)
{
    const int problem = check_alone(a);
    if (problem)
        return problem;
    if (!a->to)
        return cli_usage(a->verb, "where to? Add --to FILE.safetensors or --to FILE.onnx", "");
    if (!ls_path_ends_with(a->to, ".safetensors") && !ls_path_ends_with(a->to, ".onnx"))
        return cli_usage(a->verb, "--to: expected FILE.safetensors or FILE.onnx, found ", a->to);
    return 0;
}

const cli_trained_verb cli_export = {"export", "o", export_help, check_export, export};
