/* SPDX-License-Identifier: MIT */
/* The findings of a verification, and their places: the first difference, the segments and the
 * states (verification.h). */
#include "train/verification.h"

#include "engine/view.h"

#include <stdarg.h>
#include <string.h>

void ls_verify_differs(verification *v, const char *place, const char *format, ...)
{
    va_list args;
    if (!v->verdict.holds)
        return; /* the first difference counts */
    va_start(args, format);
    vsnprintf(v->verdict.text, sizeof v->verdict.text, format, args);
    va_end(args);
    snprintf(v->verdict.place, sizeof v->verdict.place, "%s", place);
    v->verdict.holds = 0;
}

const cJSON *ls_verify_receipt(const verification *v)
{
    return v->claim.doc ? ls_json_root(v->claim.doc) : NULL;
}

void ls_verify_receipt_differs(verification *v, const char *member_place, const char *why)
{
    char place[LS_JSON_PLACE + 20];
    snprintf(place, sizeof place, "receipt.json: %s", member_place);
    ls_verify_differs(v, place, "%s %s", place, why);
}

void ls_verify_value_differs(verification *v, const ls_json_difference *found, const char *whose)
{
    char why[200], here[LS_JSON_SHOWN], there[LS_JSON_SHOWN];
    ls_json_show(here, found->a, v->host);
    ls_json_show(there, found->b, v->host);
    snprintf(why, sizeof why, "is %s; %s %s", there, whose, here);
    ls_verify_receipt_differs(v, found->place, why);
}

uint64_t ls_verify_position(const verification *v, uint32_t entries)
{
    uint64_t at = 0;
    for (uint32_t i = 0; i < entries; i++)
        at = ls_chain_next(at, v->batch_size);
    return at;
}

uint64_t ls_verify_segment_end(const verification *v, uint32_t segment)
{
    return segment < v->claim.chain.count ? ls_verify_position(v, segment + 1) : v->claim.end;
}

uint32_t ls_verify_segments(const verification *v)
{
    const uint32_t entries = v->claim.chain.count;
    return entries + (entries == 0 || v->claim.end > ls_verify_position(v, entries));
}

/* ---- states --------------------------------------------------------------------------------- */

static bool same_tensor(const ls_param *p, const float *a, const float *b)
{
    return memcmp(a + p->offset, b + p->offset, p->count * sizeof(float)) == 0;
}

void ls_verify_name_tensors(char *text, size_t size, const verification *v, float *const *theirs,
                            int states)
{
    const ls_network *model = v->trainer->model;
    const ls_engine_state *mine = ls_engine_weights(v->trainer->engine);
    char prefix[LS_STATE_PREFIX] = "";
    int found = 0;
    for (int k = 0; k <= states; k++) {
        const int tensors = model->params + (k == 0 ? model->stats : 0);
        if (k > 0)
            ls_name_state(prefix, &v->trainer->config.optimizer, k - 1);
        for (int i = 0; i < tensors; i++) {
            const ls_param *p = k == 0 ? model->tensor[i] : model->param[i];
            const size_t used = strlen(text);
            if (same_tensor(p, theirs[k], k == 0 ? mine->canonical : mine->slot[k - 1]))
                continue;
            if (found++ < 3)
                snprintf(text + used, size - used, "%s%s%s", found > 1 ? ", " : "", prefix,
                         p->name);
        }
    }
    const size_t used = strlen(text);
    if (found > 3)
        snprintf(text + used, size - used, " and %d more", found - 3);
}

int ls_verify_states(const verification *v)
{
    return ls_optimizer_states(&v->trainer->config.optimizer);
}

bool ls_verify_read_checkpoint(uint8_t hash[LS_SHA256_BYTES], verification *v, uint64_t steps,
                               const char *path, ls_error *why)
{
    ls_trainer *t = v->trainer;
    const ls_checkpoint_values values = {v->values[0], v->values + 1};
    const ls_position at = {.steps = steps};
    const ls_hashed state = {t->model, &t->config, ls_engine_shards(t->engine), &at, values};
    ls_tensor_file *file;
    int status = ls_tensor_file_open(&file, path, v->host, why);
    if (status == LS_OK)
        status = ls_checkpoint_read(&values, file, t->model, &t->config.optimizer, v->host, why);
    ls_tensor_file_close(file);
    if (status == LS_OK)
        status = ls_state_sha256(hash, &state, why);
    return status == LS_OK;
}

/* Returns whether the state that the receipt names, `wanted`, is that of the checkpoint's tensors,
 * which are in v->values, with the recipe `recipe` of the document. */
static bool is_state_with(const verification *v, const ls_json *doc, const cJSON *recipe,
                          uint64_t steps, const uint8_t wanted[LS_SHA256_BYTES])
{
    const ls_trainer *t = v->trainer;
    const ls_position at = {.steps = steps};
    uint8_t found[LS_SHA256_BYTES];
    ls_config theirs;
    ls_error unread;
    bool same = false;
    if (ls_config_read_recipe(&theirs, doc, recipe, v->host, &unread) != LS_OK)
        return false;
    const ls_hashed state = {t->model,
                             &theirs,
                             ls_engine_shards(t->engine),
                             &at,
                             {v->values[0], (float *const *)v->values + 1}};
    if (ls_optimizer_states(&theirs.optimizer) == ls_verify_states(v))
        same = ls_state_sha256(found, &state, &unread) == LS_OK &&
               memcmp(found, wanted, sizeof found) == 0;
    ls_config_fini(&theirs);
    return same;
}

/* Says of a checkpoint with another state than the receipt's `wanted` what was changed: its recipe,
 * that of the receipt, or something else. */
static void say_change(char *text, size_t size, const verification *v, const char *path,
                       uint64_t steps, const uint8_t wanted[LS_SHA256_BYTES])
{
    ls_tensor_file *file;
    ls_json *doc = NULL;
    ls_error why, unread;
    int status = ls_tensor_file_open(&file, path, v->host, &unread);
    const char *state = status == LS_OK ? ls_tensor_file_state(file) : NULL;
    snprintf(text, size, ": the checkpoint was changed, or the receipt was");
    if (state)
        (void)ls_json_parse(&doc, "its state", state, strlen(state), v->host, &unread);
    const cJSON *recipe = doc ? member(ls_json_root(doc), "recipe") : NULL;
    if (recipe && ls_recipes_differ(&why, v->trainer, doc, recipe))
        snprintf(
            text, size, "%s: %.400s",
            is_state_with(v, doc, recipe, steps, wanted)
                ? ", but with the checkpoint's own recipe it does: the recipe of the receipt "
                  "was edited"
                : ", and has another recipe: it is that of another run, or was changed, or the "
                  "receipt was",
            why.text);
    ls_json_destroy(doc);
    ls_tensor_file_close(file);
}

void ls_verify_checkpoint_differs(verification *v, uint64_t steps, const char *where,
                                  const uint8_t wanted[LS_SHA256_BYTES])
{
    char path[LS_PATH_BYTES], name[LS_CHECKPOINT_NAME], place[LS_CHECKPOINT_NAME + 20], why[600];
    ls_verify_checkpoint_path(path, name, v, steps);
    snprintf(place, sizeof place, "checkpoints/%s", name);
    say_change(why, sizeof why, v, path, steps, wanted);
    ls_verify_differs(v, place,
                      "the checkpoint %s%s does not have the state that the receipt names%s", name,
                      where, why);
}

void ls_verify_checkpoint_path(char out[LS_PATH_BYTES], char name[LS_CHECKPOINT_NAME],
                               const verification *v, uint64_t steps)
{
    char folder[LS_PATH_BYTES];
    ls_checkpoint_name(name, steps);
    ls_path_join(out, ls_path_join(folder, v->claim.run, "checkpoints"), name);
}
