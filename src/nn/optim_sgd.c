/* {"name": "sgd", "lr": 0.2, "momentum": 0, "weight_decay": 0} */
#include "nn/optimizer.h"
#include "json/fields.h"

static void parse(ls_optimizer *optimizer, ls_fields *fields)
{
    static const double zero = 0;
    double momentum;
    double weight_decay;
    ls_field_double(fields, "momentum", 0, 1, &zero, &momentum);
    ls_field_double(fields, "weight_decay", 0, 1000, &zero, &weight_decay);
    if (momentum >= 1)
        ls_fields_fail(fields, cJSON_GetObjectItemCaseSensitive(fields->object, "momentum"),
                       "\"momentum\" must be less than 1: old gradients would never fade");
    optimizer->op.kind = LS_OP_SGD;
    optimizer->op.u.sgd =
        (ls_sgd){.momentum = (float)momentum, .weight_decay = (float)weight_decay};
    optimizer->slots = momentum > 0;
}

static void set_count(ls_op_desc *op, size_t count)
{
    op->u.sgd.count = count;
}

const ls_optimizer_type ls_optimizer_sgd = {"sgd", parse, set_count};
