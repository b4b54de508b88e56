/* SPDX-License-Identifier: MIT */
/* Keeps the chain of a run (chaining.h). */
#include "train/chaining.h"

#include "base/error.h"
#include "base/host.h"
#include "engine/view.h"
#include "train/saving.h"

#include <stdio.h>
#include <string.h>

static uint32_t batch_size(const struct ls_trainer *t)
{
    return (uint32_t)t->config.batch_size;
}

bool ls_chain_is_due(const struct ls_trainer *t, uint64_t steps)
{
    return t->agreement.chained && ls_chain_has(steps, batch_size(t));
}

int ls_hash_state(uint8_t out[LS_SHA256_BYTES], const struct ls_trainer *t, ls_error *err)
{
    ls_engine_state *now = ls_engine_weights(t->engine);
    const ls_hashed state = {.model = t->model,
                             .config = &t->config,
                             .shards = ls_engine_shards(t->engine),
                             .position = &t->position,
                             .values = {now->canonical, now->slot}};
    return ls_state_sha256(out, &state, err);
}

int ls_chain_begin(struct ls_trainer *t, ls_error *err)
{
    char hex[LS_SHA256_HEX];
    const char *file = t->config.init_weights;
    ls_weights_sha256(hex, t->model, ls_engine_weights(t->engine)->canonical);
    (void)ls_sha256_from_hex(t->chain.first, hex);
    t->chain.count = 0;
    t->chain.file[0] = '\0';
    return file ? ls_sha256_of_file(t->chain.file, file, "a file of weights", err) : LS_OK;
}

int ls_chain_state(struct ls_trainer *t, ls_error *err)
{
    uint8_t state[LS_SHA256_BYTES];
    const uint64_t steps = t->position.steps;
    if (!ls_chain_is_due(t, steps) || t->chain.count >= ls_chain_count(steps, batch_size(t)))
        return LS_OK;
    int status = ls_hash_state(state, t, err);
    if (status == LS_OK)
        ls_chain_add(&t->chain, state);
    return status;
}

/* Returns whether there is an evaluation after this epoch only if the run ends with it. */
static bool is_judged_at_end_only(const ls_config *config, uint32_t epoch)
{
    return !ls_is_multiple(epoch, config->eval_every);
}

/* Returns whether a run that had `former` epochs until `at` differs by its evaluations, or by its
 * end, from one that has had the present number from the beginning on. */
static bool differs_by_length(const struct ls_trainer *t, const ls_position *at, int former)
{
    const uint32_t before = (uint32_t)former, now = (uint32_t)t->config.epochs;
    const bool evaluates = ls_dataset_rows(t->data[LS_TEST]) > 0;
    if (before == now)
        return false;
    return at->epoch > now || (at->epoch == now && at->step > 0) ||
           (evaluates && at->epoch >= before && is_judged_at_end_only(&t->config, before)) ||
           (evaluates && at->epoch >= now && is_judged_at_end_only(&t->config, now));
}

/* Fails if the run was evaluated in another way before: a replay, which has one config, would then
 * have other records. */
static int check_evaluations(const struct ls_trainer *t, const ls_resumed *resumed, ls_error *err)
{
    const ls_position *at = &resumed->state.standing.position;
    char name[80];
    ls_config former;
    ls_json_writer a, b;
    int status =
        ls_config_read_of_model(&former, resumed->doc, resumed->state.evaluations, t->host, err);
    if (status)
        return status;
    ls_json_writer_init(&a, 0, t->host);
    ls_json_writer_init(&b, 0, t->host);
    for (const ls_config_key *row = ls_config_keys; row->key && status == LS_OK; row++) {
        const char *before = row->judges ? ls_config_key_text(&a, &former, row) : "",
                   *now = row->judges ? ls_config_key_text(&b, &t->config, row) : "";
        const bool same = row->part == LS_RECIPE_OF_LENGTH
                              ? !differs_by_length(t, at, former.epochs)
                              : before && now && strcmp(before, now) == 0;
        if (!row->judges || same)
            continue;
        snprintf(name, sizeof name, "%s%s%s", row->object, *row->object ? "." : "", row->key);
        status = ls_config_fail(
            err, &t->config, name, LS_ECONFIG,
            "%s: this run was evaluated with %.80s, and would go on with %.80s; a run that is "
            "evaluated in two ways cannot be verified. Keep the key, or set receipt to false",
            name, before ? before : "?", now ? now : "?");
    }
    ls_json_writer_fini(&b);
    ls_json_writer_fini(&a);
    ls_config_fini(&former);
    return status;
}

int ls_chain_go_on(struct ls_trainer *t, const ls_resumed *resumed, ls_error *err)
{
    const uint64_t steps = resumed->state.standing.position.steps;
    if (!t->agreement.chained)
        return LS_OK;
    ls_chain *chain = ls_alloc(t->host, sizeof *chain);
    if (!chain)
        return ls_fail(err, LS_ENOMEM, "out of memory for the states' hashes");
    int status =
        resumed->state.entries ? ls_chain_read(chain, resumed->doc, &resumed->state, err) : LS_OK;
    const bool lacks = !resumed->state.entries || !resumed->state.evaluations ||
                       chain->count != ls_chain_count(steps, batch_size(t));
    if (status == LS_OK && lacks)
        status = ls_config_fail(
            err, &t->config, "receipt", LS_ECONFIG,
            "receipt: %.200s lacks hashes of earlier states, because they were trained without "
            "receipt, or by an earlier version; set receipt to false, or begin a new run",
            resumed->path);
    if (status == LS_OK)
        status = check_evaluations(t, resumed, err);
    if (status == LS_OK)
        t->chain = *chain;
    ls_free(t->host, chain);
    return status;
}
