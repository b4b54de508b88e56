/* Keeps the chain of a run (chaining.h). */
#include "train/chaining.h"

#include "base/error.h"
#include "base/host.h"
#include "engine/view.h"

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
    const bool lacks =
        !resumed->state.entries || chain->count != ls_chain_count(steps, batch_size(t));
    if (status == LS_OK && lacks)
        status = ls_config_fail(
            err, &t->config, "receipt", LS_ECONFIG,
            "receipt: %.200s lacks hashes of earlier states, because they were trained without "
            "receipt; set receipt to false, or begin a new run",
            resumed->path);
    if (status == LS_OK)
        t->chain = *chain;
    ls_free(t->host, chain);
    return status;
}
