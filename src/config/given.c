/* SPDX-License-Identifier: MIT */
/* Reads the keys of `data` that the user sets before there is a config (given.h). */
#include "config/given.h"

#include "base/error.h"
#include "base/host.h"
#include "config/config.h"

#include <string.h>

struct ls_given_data {
    const ls_host *host;
    ls_config config; /* owns the texts in look->given */
};

/* The keys that every config must have, with any value: only `data` and `loss` are used. */
static const char least[] =
    "{\"model\": {\"layers\": []}, \"optimizer\": {\"name\": \"sgd\", \"lr\": 1}}";

static bool is_about_data(const char *assignment)
{
    return strncmp(assignment, "data.", 5) == 0 || strncmp(assignment, "data=", 5) == 0 ||
           strncmp(assignment, "loss=", 5) == 0;
}

int ls_given_data_read(ls_given_data **out, ls_inspection *look, const char *const *set, int count,
                       ls_error *err)
{
    ls_given_data *g = *out = ls_alloc(look->host, sizeof *g);
    const char **some = ls_alloc_array(look->host, (size_t)count + 1, sizeof *some);
    ls_trainer_options o = {
        .size = sizeof o, .config_text = least, .set = some, .host = look->host};
    int status = g && some ? LS_OK : ls_fail(err, LS_ENOMEM, "out of memory for the options");
    for (int i = 0; status == LS_OK && i < count; i++)
        if (is_about_data(set[i]))
            some[o.set_count++] = set[i];
    if (status == LS_OK) {
        *g = (ls_given_data){.host = look->host};
        status = ls_config_read(&g->config, &o, err);
    }
    ls_free(look->host, some);
    if (status || o.set_count == 0)
        return status;
    const ls_config *c = &g->config;
    look->given = (ls_given_keys){
        .set = cJSON_GetObjectItemCaseSensitive(ls_json_root(c->doc), "data"),
        .name = c->data_name,
        .limit = (uint32_t)c->data_limit,
        .keys = c->data_keys,
    };
    if (look->given.keys.labels == LS_LABELS_AUTO && ls_config_loss_is_of_vectors(c))
        look->given.keys.labels = LS_LABELS_VALUES;
    return LS_OK;
}

void ls_given_data_free(ls_given_data *given)
{
    if (!given)
        return;
    ls_config_fini(&given->config);
    ls_free(given->host, given);
}
