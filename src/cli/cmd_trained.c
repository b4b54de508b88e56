/* SPDX-License-Identifier: MIT */
/* The common part of the verbs that use a trained model (eval, export, predict), and the verbs eval
 * and export. */
#include "cli/overwrite.h"
#include "cli/verbs.h"

#include "base/host.h"
#include "base/plural.h"
#include "model/evaluate.h"
#include "model/export.h"
#include "model/wrong.h"

#include <getopt.h>
#include <math.h>
#include <string.h>

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
        {'o', {CLI_OUT, "to", .value = &a->to}},
        {'w', {CLI_OUT, "wrong", .value = &a->wrong}},
        {'h', {CLI_NUMBER, "threshold", .number = &a->threshold, .least = 1e-9, .greatest = 1}},
        {'h', {CLI_FLAG, "keep", .flag = &a->keep}},
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

/* Checks that no output is a file of the model or of its data. */
static int spare_trained(const cli_trained_args *a, const ls_trained *t)
{
    const char *const out[2] = {a->to, a->wrong}, *const name[2] = {"to", "wrong"};
    const char *const in[] = {t->weights_path, t->config.data_path, t->config.data_keys.test_path};
    int code = 0;
    for (int k = 0; k < 2; k++)
        for (size_t i = 0; i < sizeof in / sizeof *in && code == 0; i++)
            code = cli_spare(a->verb, name[k], out[k], in[i]);
    return code;
}

int cli_trained_run(const cli_trained_verb *verb, int argc, char **argv,
                    const ls_registry *registry)
{
    char *run;
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
    int status = ls_run_find(&run, a.run, a.best ? LS_RUN_CHECKPOINT : LS_RUN_WEIGHTS, &host, &err);
    if (status)
        return cli_fail_files(status, err.text);
    const ls_trained_options o = {
        .path = run,
        .needs_data = a.needs_data,
        .best = a.best,
        .new_data = a.new_data,
        .training_rows = a.train,
        .skip_broken = a.skip_broken,
        .skip_option = strchr(verb->letters, 'k') ? "--skip-broken" : NULL,
        .trainer = cli_options(&places, a.config, &a.set, NULL, true, &host),
    };
    status = ls_trained_open(&t, &o, &err);
    if (status == LS_OK) {
        code = spare_trained(&a, &t);
        code = code ? code : verb->run(&t, &a, registry);
        ls_trained_close(&t);
    }
    ls_free(&host, run);
    return status ? cli_fail_files(status, err.text) : code;
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

int cli_digits(double value, int least)
{
    int digits = least;
    for (double whole = fabs(value); whole >= pow(10, least) && digits < 17; whole /= 10)
        digits++;
    return digits;
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
    "  --wrong FILE.csv writes the rows that are predicted wrong, the least probable labels\n"
    "                   first, or all rows of predicted values, the largest errors first\n"
    "  --threshold T    two classes or yes-or-no targets: also prints precision, recall and F1\n"
    "                   if a row is positive from the probability T on; default: what the\n"
    "                   model file keeps\n"
    "  --keep           keeps the threshold in the model file; predictions then use it\n"
    "  --skip-broken    leaves out and counts pictures that cannot be read, and rows of a table\n"
    "                   with a text in a column of numbers\n"
    "  --devices LIST   auto, cpu, cpu:4, … (default: the config's)\n"
    "  --json           prints one JSON object\n"
    "  --help           this text\n";

/* Returns whether a metric was to be measured, but has no value for these rows. */
static bool has_none(const ls_trained_evaluation *e, int metric)
{
    return metric > LS_METRIC_ACCURACY && metric != LS_METRIC_CONFUSION &&
           e->wanted >> metric & 1 && isnan(e->measured.value[metric]);
}

static const char *why_none(const ls_trained_evaluation *e, int metric)
{
    if (e->weight == 0)
        return ls_metric_why_none(LS_METRIC_LOSS);
    return isfinite(e->measured.value[LS_METRIC_LOSS]) ? ls_metric_why_none((ls_metric)metric)
                                                       : "the loss is not finite";
}

/* Writes why metrics have no value, by their names. */
static void put_reasons(ls_json_writer *w, const ls_trained_evaluation *e)
{
    bool any = false;
    for (int m = 0; m < LS_METRICS; m++) {
        if (!has_none(e, m))
            continue;
        if (!any)
            ls_json_open_object(w, "no_value");
        any = true;
        ls_json_put_string(w, ls_metric_names[m], why_none(e, m));
    }
    if (any)
        ls_json_close(w);
}

static void put_decision_metrics(ls_json_writer *w, const ls_decision_metrics *m)
{
    ls_json_put_double(w, "precision", m->precision);
    ls_json_put_double(w, "recall", m->recall);
    ls_json_put_double(w, "f1", m->f1);
}

/* Writes the decisions at a threshold. */
static void put_decision(ls_json_writer *w, const ls_trained_decision *d)
{
    ls_json_open_object(w, "at_threshold");
    ls_json_put_double(w, "threshold", d->threshold);
    put_decision_metrics(w, &d->weighted);
    ls_json_put_uint(w, "true_positive", (uint64_t)d->rows.true_positive);
    ls_json_put_uint(w, "false_positive", (uint64_t)d->rows.false_positive);
    ls_json_put_uint(w, "true_negative", (uint64_t)d->rows.true_negative);
    ls_json_put_uint(w, "false_negative", (uint64_t)d->rows.false_negative);
    if (d->weighs) {
        ls_json_open_object(w, "unweighted");
        put_decision_metrics(w, &d->unweighted);
        ls_json_close(w);
    }
    ls_json_close(w);
}

/* Returns the name of the positive class, the second of two, or NULL if the model has no two
 * classes. `number`: memory for a class without a name. */
static const char *positive_class(const ls_trained *t, const ls_measured *m, char number[16])
{
    const char *name = ls_class_name(t, 1);
    if (m->classes != 2 || t->model->classes != 2)
        return NULL;
    snprintf(number, 16, "1");
    return name ? name : number;
}

/* Prints which of two classes is the positive one, and that it is the common one, if it is. */
static void print_positive(const ls_trained *t, const ls_measured *m)
{
    char number[16];
    const char *name = positive_class(t, m, number);
    if (!name)
        return;
    const uint32_t *k = m->confusion;
    const unsigned long long rows[2] = {(unsigned long long)k[0] + k[1],
                                        (unsigned long long)k[2] + k[3]};
    printf("  positive: %s\n", name);
    if (2 * rows[1] > 3 * rows[0])
        printf("  warning: most rows (%llu of %llu) are positive, so average_precision, f1 and "
               "--threshold are about the common class; for the other one, rename the classes so "
               "that it is the last in the alphabet, and train again\n",
               rows[1], rows[0] + rows[1]);
}

/* Prints the evaluation as JSON. `d`: the decisions at a threshold; NULL: none. */
static void print_evaluation(const ls_trained *t, const ls_trained_evaluation *e,
                             const ls_trained_decision *d)
{
    ls_json_writer w;
    char number[16];
    const char *positive = positive_class(t, &e->measured, number);
    ls_json_writer_init(&w, 0, t->host);
    ls_json_open_object(&w, NULL);
    ls_json_put_string(&w, "weights", t->weights_path);
    ls_json_put_string(&w, "data", e->data->name);
    ls_json_put_string(&w, "split", e->split);
    ls_json_put_string(&w, "source", e->data->source);
    ls_json_put_bool(&w, "synthetic", e->data->synthetic);
    ls_json_put_uint(&w, "rows", e->data->rows);
    if (e->data->left_out)
        ls_json_put_uint(&w, "rows_left_out", e->data->left_out);
    if (positive)
        ls_json_put_string(&w, "positive", positive);
    for (int m = 0; m < LS_METRICS; m++)
        if (m <= LS_METRIC_ACCURACY || !isnan(e->measured.value[m]) || has_none(e, m))
            ls_json_put_double(&w, ls_metric_names[m], e->measured.value[m]);
    ls_measured_write_each(&w, "r2_each", &e->measured);
    put_reasons(&w, e);
    ls_measured_write_unweighted(&w, "unweighted", &e->measured, e->wanted);
    if (d)
        put_decision(&w, d);
    if (e->unweighed)
        ls_json_put_bool(&w, "class_weights", false);
    ls_json_put_double(&w, "seconds", e->seconds);
    ls_json_put_string(&w, "devices", e->devices);
    for (const char *const *key = ls_class_keys; *key; key++)
        ls_measured_write(&w, *key, &e->measured);
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

/* Prints the unweighted metrics, if the rows have weights. */
static void print_unweighted(const ls_measured *m)
{
    const char *before = "  with each row counted once: ";
    for (int i = 0; m->unweighted && i < LS_METRICS; i++)
        if (!isnan(m->unweighted[i])) {
            printf("%s%s %.4f", before, i == LS_METRIC_ACCURACY ? "acc" : ls_metric_names[i],
                   m->unweighted[i]);
            before = ", ";
        }
    if (*before == ',')
        putchar('\n');
}

static void print_for_people(const ls_trained *t, const ls_trained_evaluation *e,
                             const ls_trained_decision *d)
{
    const ls_dataset_info *data = e->data;
    const double *value = e->measured.value;
    printf("%s ", e->split);
    if (!isnan(value[LS_METRIC_ACCURACY]))
        printf("acc: %.4f, ", value[LS_METRIC_ACCURACY]);
    if (e->weight > 0)
        printf("loss %.4f", value[LS_METRIC_LOSS]);
    else
        fputs("no loss", stdout);
    fputs(e->unweighed ? " without class_weights" : "", stdout);
    for (int m = LS_METRIC_TOP5; m < LS_METRICS; m++)
        if (!isnan(value[m]))
            printf(", %s %.4f", ls_metric_names[m], value[m]);
    printf("; %u ", (unsigned)data->rows);
    if (data->left_out)
        printf("of %u ", (unsigned)(data->rows + data->left_out));
    printf("%s of %s%s on %s, %.1f s\n", data->row_type == LS_ROW_U8 ? "images" : "rows",
           t->is_new ? data->source : data->name, data->synthetic ? " (synthetic data)" : "",
           e->devices, e->seconds);
    for (int k = 0; k < e->measured.targets; k++)
        printf("%s%.4f%s", k ? ", " : "  r2 of each target: ", e->measured.each[k],
               k + 1 < e->measured.targets ? "" : "\n");
    print_unweighted(&e->measured);
    for (int m = 0; m < LS_METRICS; m++)
        if (has_none(e, m))
            printf("  %s has no value: %s\n", ls_metric_names[m], why_none(e, m));
    print_positive(t, &e->measured);
    if (d)
        printf("  positive from %g on: precision %.4f, recall %.4f, f1 %.4f; %.0f of %.0f rows are "
               "predicted positive\n",
               d->threshold, d->weighted.precision, d->weighted.recall, d->weighted.f1,
               d->rows.true_positive + d->rows.false_positive,
               d->rows.true_positive + d->rows.false_positive + d->rows.true_negative +
                   d->rows.false_negative);
    print_classes(t, &e->measured);
}

static int write_wrong(const ls_trained *t, const cli_trained_args *a,
                       const ls_trained_evaluation *e, ls_error *err)
{
    ls_wrong wrong = {.host = t->host};
    int status = ls_wrong_add(&wrong, t, a->train, e->scores, err);
    if (status == LS_OK)
        status = ls_wrong_write(&wrong, a->wrong, err);
    if (status == LS_OK)
        cli_say("%s: %llu %s of %llu rows", a->wrong, (unsigned long long)wrong.count,
                wrong.values ? ls_plural(wrong.count, "error", "errors")
                             : ls_plural(wrong.count, "wrong prediction", "wrong predictions"),
                (unsigned long long)wrong.rows);
    ls_wrong_free(&wrong);
    return status;
}

static int evaluate(const ls_trained *t, const cli_trained_args *a, const ls_registry *registry)
{
    ls_error err;
    ls_trained_evaluation e;
    const double threshold = a->threshold > 0 ? a->threshold : t->card.threshold;
    ls_trained_decision decision, *decided = threshold > 0 ? &decision : NULL;
    int status =
        ls_trained_evaluate(&e, t, a->train, a->wrong || decided, registry, a->devices, &err);
    if (status == LS_OK && decided)
        status = ls_trained_decide(decided, t, a->train, e.scores, threshold, &err);
    if (status == LS_OK && a->keep)
        status = ls_trained_keep_threshold(t, threshold, &err);
    if (status == LS_OK && a->wrong)
        status = write_wrong(t, a, &e, &err);
    if (e.unweighed)
        cli_say("class_weights \"balanced\" need the run's training rows, which are not read; "
                "the loss is computed without them");
    if (status == LS_OK)
        a->json ? print_evaluation(t, &e, decided) : print_for_people(t, &e, decided);
    if (status == LS_OK && a->keep)
        cli_say("%s: rows are predicted positive from %g on", t->weights_path, threshold);
    ls_trained_evaluation_free(&e, t);
    return status ? cli_fail_files(status, err.text) : cli_flush();
}

static int check_eval(cli_trained_args *a)
{
    a->needs_data = true;
    if (a->wrong && !ls_path_ends_with(a->wrong, ".csv"))
        return cli_usage(a->verb, "--wrong: expected FILE.csv, found ", a->wrong);
    if (a->keep && a->threshold == 0)
        return cli_usage(a->verb, "--keep: which threshold? Add --threshold T", "");
    return check_alone(a);
}

const cli_trained_verb cli_eval = {"eval", "jtdnwhk", eval_help, check_eval, evaluate};

/* ---- trainer export RUN --to FILE ------------------------------------------------------------ */

static const char export_help[] =
    "usage: {} export RUN --to FILE.safetensors|FILE.onnx [options]\n"
    "\n"
    "Writes a trained model for other programs: its weights, named as PyTorch names them, or\n"
    "the whole network as ONNX (batch norm for inference, no dropout, any batch size; its\n"
    "inputs are rows as they are in the data).\n"
    "\n" CLI_TRAINED_HELP "  --to FILE        the file to write; its ending decides the format\n"
    "  --help           this text\n";

static int export(const ls_trained *t, const cli_trained_args *a, const ls_registry *registry)
{
    ls_error err;
    ls_exported file;
    (void)registry;
    const int status = ls_trained_export(&file, t, a->to, &err);
    if (status)
        return cli_fail_files(status, err.text);
    printf("%s: %llu bytes, ", a->to, (unsigned long long)file.bytes);
    if (file.opset)
        printf("ONNX IR version %d, opset %d", file.ir_version, file.opset);
    else
        printf("%d %s", file.tensors, ls_plural((uint64_t)file.tensors, "tensor", "tensors"));
    printf("; from %s\n", t->weights_path);
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
