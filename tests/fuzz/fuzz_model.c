/* SPDX-License-Identifier: MIT */
/* Model files: an accepted model is a graph in order, with shapes and tensors that fit. Each text
 * is read for a small grey input and for a coloured one. */
#include "fuzz/fuzz.h"
#include "nn/network.h"

#include <string.h>

static const char name[] = "model.json";

static void check_shape(const ls_shape *s)
{
    fuzz_check(s->c > 0 && s->h > 0 && s->w > 0, "shapes are positive");
    fuzz_check((long long)s->h * s->w <= LS_MODEL_VALUES &&
                   (long long)s->h * s->w * s->c <= LS_MODEL_VALUES,
               "shapes are bounded");
}

static void check_layer(const ls_network *m, int index)
{
    const ls_layer *layer = &m->layer[index];
    fuzz_check(layer->index == index && layer->type != NULL, "layers know their place");
    fuzz_check(layer->inputs == 1 || layer->inputs == LS_INPUTS, "layers have one or two inputs");
    check_shape(&layer->in);
    check_shape(&layer->out);
    check_shape(&layer->y);
    for (int k = 0; k < layer->inputs; k++) {
        int from = layer->input[k];
        const ls_shape *in = k == 0 ? &layer->in : &layer->in2;
        fuzz_check(from >= LS_INPUT && from < index, "layers read earlier layers alone");
        const ls_shape *out = from == LS_INPUT ? &m->input : &m->layer[from].out;
        fuzz_check(memcmp(in, out, sizeof *in) == 0, "layers read what others give");
    }
}

static void check_model(const ls_network *m)
{
    size_t at = 0;
    fuzz_check(m->layers >= 1 && m->layers <= LS_MODEL_LAYERS, "the number of layers is bounded");
    for (int i = 0; i < m->layers; i++)
        check_layer(m, i);
    for (int i = 0; i < m->params + m->stats; i++) {
        const ls_param *p = m->tensor[i];
        size_t count = 1;
        for (int d = 0; d < p->rank; d++)
            count *= (size_t)p->dim[d];
        fuzz_check(p->count == count && count > 0, "tensors have as many floats as their shape");
        fuzz_check(p->offset == at, "tensors follow one another");
        at += count;
        for (int k = 0; k < i && i < 40; k++)
            fuzz_check(strcmp(p->name, m->tensor[k]->name) != 0, "tensors have different names");
    }
    fuzz_check(m->params > 0 && at == m->floats && at <= LS_MODEL_FLOATS,
               "all floats are tensors'");
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static const ls_shape inputs[] = {{1, 12, 12}, {3, 32, 32}};
    ls_json *doc = NULL;
    ls_error err = {0};
    if (ls_json_parse(&doc, name, (const char *)data, size, NULL, &err) != LS_OK)
        return 0;
    for (int i = 0; i < 2; i++) {
        ls_network *model = NULL;
        int rc = ls_network_parse(&model, doc, ls_json_root(doc), inputs[i], 10, NULL, &err);
        if (rc != LS_OK) {
            fuzz_check(model == NULL, "a refusal leaves nothing behind");
            fuzz_check_refusal(rc, &err, name);
            fuzz_check(fuzz_names_place(err.text, name), "a refusal names line and column");
        } else {
            check_model(model);
        }
        ls_network_destroy(model, NULL);
    }
    ls_json_destroy(doc);
    return 0;
}
