/* {"name": "adamw", "lr": 0.001, "beta1": 0.9, "beta2": 0.999, "epsilon": 1e-8,
 * "weight_decay": 0.01} */
#include "nn/optimizer.h"
#include "json/fields.h"

/* A mean that never forgets would never follow the gradients. */
static float read_beta(ls_fields *fields, const char *key, double fallback)
{
    double beta;
    ls_field_double(fields, key, 0, 1, &fallback, &beta);
    if ((float)beta >= 1)
        ls_fields_fail(fields, cJSON_GetObjectItemCaseSensitive(fields->object, key),
                       "\"%s\" must be less than 1: old gradients would never fade", key);
    return (float)beta;
}

static void parse(ls_optimizer *optimizer, ls_fields *fields)
{
    static const double epsilon = 1e-8;
    static const double decay = 0.01;
    ls_adamw *adamw = &optimizer->op.u.adamw;
    double value;
    optimizer->op.kind = LS_OP_ADAMW;
    adamw->beta1 = read_beta(fields, "beta1", 0.9);
    adamw->beta2 = read_beta(fields, "beta2", 0.999);
    ls_field_double(fields, "epsilon", 1e-12, 1, &epsilon, &value);
    adamw->epsilon = (float)value;
    ls_field_double(fields, "weight_decay", 0, 1000, &decay, &value);
    adamw->weight_decay = (float)value;
    optimizer->slots = 2;
}

static void set_count(ls_op_desc *op, size_t count)
{
    op->u.adamw.count = count;
}

static void write(const ls_optimizer *optimizer, ls_json_writer *w)
{
    const ls_adamw *adamw = &optimizer->op.u.adamw;
    ls_json_put_float(w, "beta1", adamw->beta1);
    ls_json_put_float(w, "beta2", adamw->beta2);
    ls_json_put_float(w, "epsilon", adamw->epsilon);
    ls_json_put_float(w, "weight_decay", adamw->weight_decay);
}

const ls_optimizer_type ls_optimizer_adamw = {
    "adamw", {"exp_avg", "exp_avg_sq"}, parse, set_count, write};
