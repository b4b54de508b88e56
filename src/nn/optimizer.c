/* SPDX-License-Identifier: MIT */
/* The optimizers. The table below has one row for each optimizer. */
#include "nn/optimizer.h"

#include "nn/layer.h"

/* ---- sgd ------------------------------------------------------------------------------------ */

/* Reads the decay of a moving average of gradients (the fraction of the average that a step keeps).
 * It must be at least 0 and below 1, because an average with the decay 1 would not change. */
static float read_beta(ls_fields *fields, const char *key, double fallback)
{
    const float beta = ls_read_float(fields, key, 0, 1, fallback);
    if (beta >= 1)
        ls_fields_fail(fields, cJSON_GetObjectItemCaseSensitive(fields->object, key),
                       "\"%s\" must be less than 1: old gradients would never fade", key);
    return beta;
}

/* {"name": "sgd", "lr": 0.2, "momentum": 0, "weight_decay": 0, "nesterov": false} */
static void parse_sgd(ls_optimizer *optimizer, ls_fields *fields)
{
    static const int no = 0;
    int nesterov;
    const float momentum = read_beta(fields, "momentum", 0);
    const float weight_decay = ls_read_float(fields, "weight_decay", 0, 1000, 0);
    if (ls_field_bool(fields, "nesterov", &no, &nesterov) && nesterov && momentum == 0)
        ls_fields_fail(fields, cJSON_GetObjectItemCaseSensitive(fields->object, "nesterov"),
                       "\"nesterov\" needs momentum; add \"momentum\", such as 0.9");
    optimizer->op.kind = LS_OP_SGD;
    optimizer->op.u.sgd =
        (ls_sgd){.momentum = momentum, .weight_decay = weight_decay, .nesterov = nesterov};
    optimizer->slots = momentum > 0;
}

static void write_sgd(const ls_optimizer *optimizer, ls_json_writer *w)
{
    const ls_sgd *sgd = &optimizer->op.u.sgd;
    ls_json_put_float(w, "momentum", sgd->momentum);
    ls_json_put_float(w, "weight_decay", sgd->weight_decay);
    ls_json_put_bool(w, "nesterov", sgd->nesterov);
}

static const ls_optimizer_type sgd = {"sgd", {"momentum_buffer"}, parse_sgd, write_sgd};

/* ---- adamw ---------------------------------------------------------------------------------- */

/* {"name": "adamw", "lr": 0.001, "beta1": 0.9, "beta2": 0.999, "epsilon": 1e-8,
 * "weight_decay": 0.01} */
static void parse_adamw(ls_optimizer *optimizer, ls_fields *fields)
{
    ls_adamw *adamw = &optimizer->op.u.adamw;
    optimizer->op.kind = LS_OP_ADAMW;
    adamw->beta1 = read_beta(fields, "beta1", 0.9);
    adamw->beta2 = read_beta(fields, "beta2", 0.999);
    adamw->epsilon = ls_read_float(fields, "epsilon", 1e-30, 1, 1e-8);
    adamw->weight_decay = ls_read_float(fields, "weight_decay", 0, 1000, 0.01);
    optimizer->slots = 2;
}

static void write_adamw(const ls_optimizer *optimizer, ls_json_writer *w)
{
    const ls_adamw *adamw = &optimizer->op.u.adamw;
    ls_json_put_float(w, "beta1", adamw->beta1);
    ls_json_put_float(w, "beta2", adamw->beta2);
    ls_json_put_float(w, "epsilon", adamw->epsilon);
    ls_json_put_float(w, "weight_decay", adamw->weight_decay);
}

static const ls_optimizer_type adamw = {
    "adamw", {"exp_avg", "exp_avg_sq"}, parse_adamw, write_adamw};

/* ---- the table ------------------------------------------------------------------------------ */

static const ls_optimizer_type *const types[] = {&sgd, &adamw};

enum { TYPES = sizeof types / sizeof *types };

int ls_optimizer_parse(ls_optimizer *out, const ls_json *doc, const cJSON *node, ls_error *err)
{
    static const int first = 0;
    static const double any = 0;
    const char *names[TYPES + 1] = {0};
    ls_optimizer optimizer = {0};
    ls_fields f;
    int type;
    for (int i = 0; i < TYPES; i++)
        names[i] = types[i]->name;
    ls_fields_begin(&f, doc, node, "optimizer", err);
    ls_field_choice(&f, "name", names, &first, &type);
    ls_field_double(&f, "lr", 0, 1e6, NULL, &optimizer.lr);
    ls_field_double(&f, "clip_norm", 0, 1e30, &any, &optimizer.clip_norm);
    optimizer.type = types[type];
    optimizer.op.size = sizeof optimizer.op;
    optimizer.type->parse(&optimizer, &f);
    int status = ls_fields_end(&f);
    if (status == LS_OK)
        *out = optimizer;
    return status;
}

void ls_optimizer_write(ls_json_writer *w, const char *key, const ls_optimizer *optimizer)
{
    ls_json_open_object(w, key);
    ls_json_put_string(w, "name", optimizer->type->name);
    ls_json_put_double(w, "lr", optimizer->lr);
    ls_json_put_double(w, "clip_norm", optimizer->clip_norm);
    optimizer->type->write(optimizer, w);
    ls_json_close(w);
}

/* ---- state kept beside the weights ----------------------------------------------------------- */

int ls_optimizer_states(const ls_optimizer *optimizer)
{
    return optimizer->slots + (optimizer->ema > 0);
}

const char *ls_optimizer_state_name(const ls_optimizer *optimizer, int state)
{
    return state < optimizer->slots ? optimizer->type->slot[state] : "weights";
}

int ls_optimizer_average(const ls_optimizer *optimizer)
{
    return optimizer->ema > 0 ? optimizer->slots : -1;
}
