/* SPDX-License-Identifier: MIT */
/* Allocates and frees the exchange (exchange.h). */
#include "engine/exchange.h"

#include "base/error.h"
#include "base/host.h"
#include "engine/state.h"

#include <string.h>

static bool allocate(ls_exchange *x, ls_engine *e)
{
    const ls_engine_desc *d = &e->desc;
    const uint32_t train = ls_dataset_rows(d->data[LS_TRAIN]);
    ls_engine_state *state = &x->state;
    x->test = (ls_sharded_rows){.rows = ls_dataset_rows(d->data[LS_TEST]),
                                .batch = ls_evaluation_batch(d->batch_size, (uint32_t)e->shards),
                                .shards = (uint32_t)e->shards,
                                .classes = d->model->classes,
                                .stop = d->stop};
    for (int i = 0; i < 2; i++)
        x->permutation[i] = ls_alloc_array(d->host, train, sizeof *x->permutation[i]);
    state->canonical = ls_alloc_array(d->host, d->model->floats, sizeof *state->canonical);
    bool complete = ls_sharded_rows_init(&x->test, d->host, NULL) == LS_OK && x->permutation[0] &&
                    x->permutation[1] && state->canonical;
    if (d->scores && x->test.rows > 0) {
        x->test.scores =
            ls_alloc_array(d->host, x->test.rows * sizeof *x->test.scores, (size_t)x->test.classes);
        e->lacks_scores = !x->test.scores;
        complete = complete && x->test.scores;
    }
    if (complete)
        ls_dataset_view_rows(d->data[LS_TEST], x->test.row, x->test.rows);
    for (int i = 0; i < ls_optimizer_states(d->optimizer); i++) {
        state->slot[i] = ls_alloc_array(d->host, d->model->floats, sizeof *state->slot[i]);
        complete = complete && state->slot[i];
    }
    return complete;
}

int ls_exchange_create(ls_exchange **out, ls_engine *e, ls_error *err)
{
    ls_exchange *x = ls_alloc(e->desc.host, sizeof *x);
    e->lacks_scores = false;
    if (!x || !allocate(x, e)) {
        ls_exchange_destroy(x, e->desc.host);
        return ls_fail(err, LS_ENOMEM, "out of memory for the lists of rows and %zu weights",
                       e->desc.model->floats);
    }
    x->engine = e;
    x->model = e->desc.model;
    x->exporter = -1;
    *out = x;
    return LS_OK;
}

void ls_exchange_destroy(ls_exchange *e, const ls_host *host)
{
    if (!e)
        return;
    for (int i = 0; i < LS_STATES; i++)
        ls_free(host, e->state.slot[i]);
    ls_free(host, e->state.canonical);
    ls_free(host, e->test.scores);
    ls_sharded_rows_fini(&e->test, host);
    ls_free(host, e->permutation[1]);
    ls_free(host, e->permutation[0]);
    ls_free(host, e);
}
