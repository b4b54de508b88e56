#include "nn/optimizer.h"

#include "json/fields.h"

extern const ls_optimizer_type ls_optimizer_sgd, ls_optimizer_adamw;

static const ls_optimizer_type *const types[] = {&ls_optimizer_sgd, &ls_optimizer_adamw};

enum { TYPES = sizeof types / sizeof *types };

int ls_optimizer_parse(ls_optimizer *out, const ls_json *doc, const cJSON *node, ls_error *err)
{
    static const int sgd = 0;
    const char *names[TYPES + 1] = {0};
    ls_optimizer optimizer = {0};
    ls_fields f;
    int type;
    for (int i = 0; i < TYPES; i++)
        names[i] = types[i]->name;
    ls_fields_begin(&f, doc, node, "optimizer", err);
    ls_field_choice(&f, "name", names, &sgd, &type);
    ls_field_double(&f, "lr", 0, 1e6, NULL, &optimizer.lr);
    optimizer.type = types[type];
    optimizer.op.size = sizeof optimizer.op;
    optimizer.type->parse(&optimizer, &f);
    int rc = ls_fields_end(&f);
    if (rc == LS_OK)
        *out = optimizer;
    return rc;
}

void ls_optimizer_write(ls_json_writer *w, const char *key, const ls_optimizer *optimizer)
{
    ls_json_open_object(w, key);
    ls_json_put_string(w, "name", optimizer->type->name);
    ls_json_put_double(w, "lr", optimizer->lr);
    optimizer->type->write(optimizer, w);
    ls_json_close(w);
}
