/* trainer export RUN --to FILE */
#include "base/error.h"
#include "cli/trained_args.h"
#include "nn/safetensors.h"
#include "tools/onnx.h"

#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

static const char help[] =
    "usage: trainer export RUN --to FILE.safetensors|FILE.onnx [options]\n"
    "\n"
    "Writes a trained model for other programs: its weights, named as PyTorch names them, or the\n"
    "whole network as ONNX (batch norm for inference, no dropout, any batch size; pixels / 255 in).\n"
    "\n";
static const char more[] = "  --to FILE        where to; its ending says what\n"
                           "  --help           this text\n";

static int ends_with(const char *text, const char *end)
{
    const size_t n = strlen(text), m = strlen(end);
    return n > m && strcmp(text + n - m, end) == 0;
}

static int save(const ls_trained *t, const char *to, ls_error *err)
{
    if (ends_with(to, ".safetensors"))
        return ls_safetensors_save(to, t->model, t->weights, t->host, err);
    const ls_onnx_desc d = {
        .model = t->model,
        .weights = t->weights,
        .normalisation = t->config.preprocessing,
        .name = t->model->name[0] ? t->model->name : t->config.name,
    };
    return ls_onnx_save(to, &d, t->host, err);
}

static int export(const ls_trained *t, const cli_trained_args *a, const ls_registry *registry)
{
    const char *to = a->to;
    ls_error err;
    struct stat st;
    (void)registry;
    int status = save(t, to, &err);
    if (status)
        return cli_fail(status, &err);
    const long long bytes = stat(to, &st) == 0 ? (long long)st.st_size : 0;
    if (ends_with(to, ".onnx"))
        printf("%s: %lld bytes, ONNX IR version %d, opset %d; from %s\n", to, bytes,
               LS_ONNX_IR_VERSION, LS_ONNX_OPSET, t->weights_path);
    else
        printf("%s: %lld bytes, %d tensors; from %s\n", to, bytes,
               t->model->params + t->model->stats, t->weights_path);
    return cli_flush();
}

static int check(cli_trained_args *a)
{
    const int problem = cli_only_a_run(a);
    if (problem)
        return problem;
    if (!a->to)
        return cli_verb_usage(a->verb, "where to? Add --to FILE.safetensors or --to FILE.onnx", "");
    if (!ends_with(a->to, ".safetensors") && !ends_with(a->to, ".onnx"))
        return cli_verb_usage(a->verb, "--to: expected FILE.safetensors or FILE.onnx, found ",
                              a->to);
    return 0;
}

int cli_export(int argc, char **argv)
{
    static const cli_trained_verb verb = {"export", "o", help, more, check, export};
    return cli_trained_run(&verb, argc, argv, NULL);
}
