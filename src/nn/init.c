/* Initial weights. Every number is a draw of its own, so that any thread may make any part. */
#include "base/error.h"
#include "base/rng.h"
#include "nn/model.h"
#include "json/fields.h"

#include <math.h>
#include <string.h>

static const char *const names[] = {"normal", "xavier", "kaiming", NULL};

enum { RULES = sizeof names / sizeof *names - 1 };

const char *ls_init_name(ls_init_rule rule)
{
    return names[rule];
}

static int parse_object(ls_init *out, ls_fields *f)
{
    static const double std = 0.01;
    int rule;
    double value;
    ls_field_choice(f, "name", names, NULL, &rule);
    if (ls_field_double(f, "std", 0, 1000, &std, &value) && rule != LS_INIT_NORMAL)
        ls_fields_fail(f, cJSON_GetObjectItemCaseSensitive(f->object, "std"),
                       "\"std\" belongs to \"normal\" alone; remove it");
    *out = (ls_init){(ls_init_rule)rule, (float)value};
    return ls_fields_end(f);
}

static int parse_name(ls_init *out, const ls_json *doc, const cJSON *node, ls_error *err)
{
    const char *name = node->valuestring;
    for (int i = 0; names[i]; i++) {
        if (strcmp(names[i], name) == 0) {
            *out = (ls_init){(ls_init_rule)i, 0.01f};
            return LS_OK;
        }
    }
    const char *near = ls_closest(name, names, RULES);
    if (near)
        return ls_json_fail_value(err, doc, node, LS_ECONFIG,
                                  "unknown init \"%.40s\"; did you mean \"%s\"?", name, near);
    return ls_json_fail_value(err, doc, node, LS_ECONFIG,
                              "unknown init \"%.40s\"; expected one of: normal, xavier, kaiming",
                              name);
}

int ls_init_parse(ls_init *out, const ls_json *doc, const cJSON *node, ls_error *err)
{
    if (!node) {
        *out = (ls_init){LS_INIT_NORMAL, 0.01f};
        return LS_OK;
    }
    if (cJSON_IsString(node))
        return parse_name(out, doc, node, err);
    if (!cJSON_IsObject(node))
        return ls_json_fail_value(err, doc, node, LS_ECONFIG,
                                  "init: expected a name or an object {…}, found %s",
                                  ls_json_kind(node));
    ls_fields f;
    ls_fields_begin(&f, doc, node, "init", err);
    return parse_object(out, &f);
}

static float start_of(const ls_param *p)
{
    return p->start == LS_START_ONES ? 1.0f : 0.0f;
}

/* One weight of parameter number `stream`. Computed in double and rounded once. */
static float draw(const ls_param *p, const ls_init *init, uint64_t seed, uint32_t stream,
                  uint64_t element)
{
    if (init->rule == LS_INIT_XAVIER) {
        double limit = sqrt(6.0 / ((double)p->fan_in + p->fan_out));
        return (float)((2.0 * ls_rng_uniform(seed, stream, 0, element) - 1.0) * limit);
    }
    double std = init->rule == LS_INIT_NORMAL ? init->std : sqrt(2.0 / p->fan_in);
    return (float)(std * ls_rng_normal(seed, stream, 0, element));
}

void ls_init_weights(float *canonical, const ls_model *model, const ls_init *init, uint64_t seed)
{
    for (int i = 0; i < model->params; i++) {
        const ls_param *p = model->param[i];
        const uint32_t stream = LS_STREAM_INIT + (uint32_t)i;
        for (size_t k = 0; k < p->count; k++)
            canonical[p->offset + k] =
                p->start == LS_START_DRAWN ? draw(p, init, seed, stream, k) : start_of(p);
    }
    for (int i = 0; i < model->stats; i++)
        for (size_t k = 0; k < model->stat[i]->count; k++)
            canonical[model->stat[i]->offset + k] = start_of(model->stat[i]);
}
