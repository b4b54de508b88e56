/* trainer eval RUN */
#include "base/clock.h"
#include "cli/trained_args.h"
#include "json/writer.h"

#include <stdio.h>

static const char help[] =
    "usage: trainer eval RUN [options]\n"
    "\n"
    "Evaluates a trained model on the test images of its data: loss and accuracy, the same numbers\n"
    "as in the run's own records, on any number of devices.\n"
    "\n";
static const char more[] = "  --data DIR       the directory with the data's files\n"
                           "  --train          on the training images\n"
                           "  --devices LIST   auto, cpu, cpu:4, … (default: the config's)\n"
                           "  --json           one JSON object on stdout\n"
                           "  --help           this text\n";

typedef struct outcome {
    const ls_dataset_info *data;
    double loss, accuracy, seconds;
    const char *devices, *weights;
} outcome;

static void print_json(const outcome *o, const ls_host *host)
{
    ls_json_writer w;
    ls_error err;
    ls_json_writer_init(&w, 0, host);
    ls_json_open_object(&w, NULL);
    ls_json_put_string(&w, "weights", o->weights);
    ls_json_put_string(&w, "data", o->data->name);
    ls_json_put_string(&w, "split", o->data->split);
    ls_json_put_bool(&w, "synthetic", o->data->synthetic);
    ls_json_put_uint(&w, "rows", o->data->rows);
    ls_json_put_double(&w, "loss", o->loss);
    ls_json_put_double(&w, "accuracy", o->accuracy);
    ls_json_put_double(&w, "seconds", o->seconds);
    ls_json_put_string(&w, "devices", o->devices);
    ls_json_close(&w);
    const char *text = ls_json_writer_text(&w, NULL, &err);
    if (text)
        puts(text);
    ls_json_writer_fini(&w);
}

static int evaluate(const ls_trained *t, const cli_trained_args *a, const ls_registry *registry)
{
    char cache[4096];
    ls_error err;
    ls_prediction sum;
    const ls_dataset *data = t->data[a->train ? LS_TRAIN : LS_TEST];
    const ls_dataset_view view = ls_dataset_resident(data);
    ls_predict_desc d = cli_predict_desc(t, a, registry, cache);
    outcome o = {.data = ls_dataset_describe(data), .weights = t->weights_path};
    d.images = view.images;
    d.labels = view.labels;
    d.rows = o.data->rows;
    const uint64_t start = ls_now_ns();
    int status = ls_predict(&sum, NULL, &d, &err);
    if (status)
        return cli_fail(status, &err);
    o.seconds = (double)(ls_now_ns() - start) * 1e-9;
    o.loss = sum.loss / d.rows;
    o.accuracy = sum.correct / d.rows;
    o.devices = sum.devices;
    if (a->json)
        print_json(&o, t->host);
    else
        printf("%s acc: %.4f, loss %.4f; %u images of %s%s on %s, %.1f s\n", o.data->split,
               o.accuracy, o.loss, (unsigned)d.rows, o.data->name,
               o.data->synthetic ? " (synthetic data)" : "", o.devices, o.seconds);
    return cli_flush();
}

static int check(cli_trained_args *a)
{
    a->needs_data = 1;
    return cli_only_a_run(a);
}

int cli_eval(int argc, char **argv, const ls_registry *registry)
{
    static const cli_trained_verb verb = {"eval", "jtd", help, more, check, evaluate};
    return cli_trained_run(&verb, argc, argv, registry);
}
