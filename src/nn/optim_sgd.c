/* {"name": "sgd", "lr": 0.2, "momentum": 0, "weight_decay": 0, "nesterov": false} */
#include "nn/optimizer.h"
#include "json/fields.h"

static void parse(ls_optimizer *optimizer, ls_fields *fields)
{
    static const double zero = 0;
    static const int no = 0;
    int nesterov;
    double momentum;
    double weight_decay;
    ls_field_double(fields, "momentum", 0, 1, &zero, &momentum);
    ls_field_double(fields, "weight_decay", 0, 1000, &zero, &weight_decay);
    if ((float)momentum >= 1)
        ls_fields_fail(fields, cJSON_GetObjectItemCaseSensitive(fields->object, "momentum"),
                       "\"momentum\" must be less than 1: old gradients would never fade");
    if (ls_field_bool(fields, "nesterov", &no, &nesterov) && nesterov && momentum == 0)
        ls_fields_fail(fields, cJSON_GetObjectItemCaseSensitive(fields->object, "nesterov"),
                       "\"nesterov\" needs momentum; add \"momentum\", such as 0.9");
    optimizer->op.kind = LS_OP_SGD;
    optimizer->op.u.sgd = (ls_sgd){
        .momentum = (float)momentum, .weight_decay = (float)weight_decay, .nesterov = nesterov};
    optimizer->slots = momentum > 0;
}

static void set_count(ls_op_desc *op, size_t count)
{
    op->u.sgd.count = count;
}

static void write(const ls_optimizer *optimizer, ls_json_writer *w)
{
    const ls_sgd *sgd = &optimizer->op.u.sgd;
    ls_json_put_float(w, "momentum", sgd->momentum);
    ls_json_put_float(w, "weight_decay", sgd->weight_decay);
    ls_json_put_bool(w, "nesterov", sgd->nesterov);
}

const ls_optimizer_type ls_optimizer_sgd = {"sgd", {"momentum_buffer"}, parse, set_count, write};
