/* Memory through which the coordinator and its workers exchange rows, results and weights. */
#include "base/error.h"
#include "base/host.h"
#include "train/run.h"

static int allocate(ls_exchange *e, const struct ls_trainer *t)
{
    uint32_t train = ls_subset_rows(t, LS_TRAIN), test = ls_subset_rows(t, LS_TEST);
    size_t batch = (size_t)t->config.batch_size, minibatches = (test + batch - 1) / batch;
    for (int i = 0; i < 2; i++)
        e->permutation[i] = ls_alloc_array(t->host, train, sizeof *e->permutation[i]);
    e->test_rows = ls_alloc_array(t->host, test, sizeof *e->test_rows);
    e->tally = ls_alloc_array(t->host, minibatches * (size_t)t->shards, sizeof *e->tally);
    e->canonical = ls_alloc_array(t->host, t->model->floats, sizeof *e->canonical);
    int complete =
        e->permutation[0] && e->permutation[1] && e->test_rows && e->tally && e->canonical;
    for (int i = 0; i < t->config.optimizer.slots; i++) {
        e->slot[i] = ls_alloc_array(t->host, t->model->floats, sizeof *e->slot[i]);
        complete = complete && e->slot[i];
    }
    return complete;
}

int ls_exchange_create(ls_exchange **out, struct ls_trainer *t, ls_error *err)
{
    ls_exchange *e = ls_alloc(t->host, sizeof *e);
    if (!e || !allocate(e, t)) {
        ls_exchange_destroy(e, t->host);
        return ls_fail(err, LS_ENOMEM, "out of memory for the lists of rows and %zu weights",
                       t->model->floats);
    }
    e->trainer = t;
    e->exporter = -1;
    for (uint32_t i = 0; i < ls_subset_rows(t, LS_TEST); i++)
        e->test_rows[i] = i;
    *out = e;
    return LS_OK;
}

void ls_exchange_destroy(ls_exchange *e, const ls_host *host)
{
    if (!e)
        return;
    for (int i = 0; i < LS_OP_SLOTS; i++)
        ls_free(host, e->slot[i]);
    ls_free(host, e->canonical);
    ls_free(host, e->tally);
    ls_free(host, e->test_rows);
    ls_free(host, e->permutation[1]);
    ls_free(host, e->permutation[0]);
    ls_free(host, e);
}
