/* SPDX-License-Identifier: MIT */
/* ONNX: a file read as a model. An accepted file gives layers that are a model, except what only
 * the reader of layers checks, with as many weights as the model has; memory is bounded by the size
 * of the file. */
#include "fuzz/fuzz.h"
#include "onnx/import.h"

#include <stdlib.h>
#include <string.h>

static fuzz_file file;
static int opened;

/* Memory that the reader holds, in bytes. */
typedef struct account {
    size_t held, most;
} account;

/* The number of bytes of a block stands before it. */
enum { BEFORE = 64 };

static void *take(void *user, size_t bytes, size_t align)
{
    account *a = user;
    void *block = NULL;
    if (align > BEFORE || bytes > SIZE_MAX - BEFORE ||
        posix_memalign(&block, BEFORE, bytes + BEFORE) != 0)
        return NULL;
    memcpy(block, &bytes, sizeof bytes);
    a->held += bytes;
    a->most = a->held > a->most ? a->held : a->most;
    return (char *)block + BEFORE;
}

static void give(void *user, void *memory)
{
    account *a = user;
    size_t bytes;
    char *block = (char *)memory - BEFORE;
    memcpy(&bytes, block, sizeof bytes);
    a->held -= bytes;
    free(block);
}

static void check_accepted(const ls_onnx_net *net)
{
    ls_json *doc = NULL;
    ls_network *model = NULL;
    ls_error err = {0};
    fuzz_check(ls_onnx_net_parse(&doc, net, NULL) == LS_OK,
               "the layers of an accepted file are JSON");
    const cJSON *side = cJSON_GetObjectItemCaseSensitive(ls_json_root(doc), "input")->child;
    const ls_shape input = {side->valueint, side->next->valueint, side->next->next->valueint};
    int rc = ls_network_parse(&model, doc, ls_json_root(doc), input,
                              ls_onnx_net_about(net)->outputs, NULL, &err);
    if (rc == LS_OK) {
        float *weights = calloc(model->floats, sizeof *weights);
        fuzz_check(weights && ls_onnx_net_load(weights, net, model, &err) == LS_OK,
                   "an accepted file has the weights of its layers");
        free(weights);
    } else {
        fuzz_check(rc == LS_ECONFIG || rc == LS_EINVAL, "layers are refused for what they are");
    }
    ls_network_destroy(model, NULL);
    ls_json_destroy(doc);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    account used = {0};
    const ls_host host = {.size = sizeof host, .user = &used, .alloc = take, .free = give};
    ls_onnx_net *net = NULL;
    ls_error err = {0};
    if (!opened)
        fuzz_file_open(&file);
    opened = 1;
    fuzz_file_fill(&file, data, size);
    const ls_onnx_source source = {.path = file.path};
    int rc = ls_onnx_import(&net, &source, &host, &err);
    if (rc == LS_OK)
        check_accepted(net);
    else
        fuzz_check_refusal(rc, &err, file.path);
    ls_onnx_net_destroy(net);
    fuzz_check(used.held == 0, "all memory is freed");
    fuzz_check(used.most <= ((size_t)64 << 20) + 1024 * size, "memory is bounded by the file");
    return 0;
}
