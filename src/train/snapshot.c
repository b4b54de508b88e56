#include "base/error.h"
#include "base/host.h"
#include "nn/safetensors.h"
#include "train/inference.h"
#include "train/predictor.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>

struct ls_inference {
    atomic_uint references;
    atomic_ullong snapshots; /* made so far: each has a number of its own */
    ls_model *model;
    ls_registry *own_registry;
    ls_predictor_desc desc;
    char device[80];
    const ls_host *host;
    pthread_mutex_t lock; /* of the list */
    ls_predictor *idle;
};

struct ls_snapshot {
    atomic_uint references;
    ls_inference *inference;
    uint64_t id, steps;
    float *canonical;
};

/* ---- counting --------------------------------------------------------------------------------
 * A reference is only added by somebody who holds one, so that adding needs no order. Whoever gives
 * the last one back must see everything that the others did before they gave theirs: release when
 * giving, acquire by the last. */

static void retain(atomic_uint *references)
{
    atomic_fetch_add_explicit(references, 1, memory_order_relaxed);
}

static int was_last(atomic_uint *references)
{
    return atomic_fetch_sub_explicit(references, 1, memory_order_acq_rel) == 1;
}

/* ---- what is shared ------------------------------------------------------------------------- */

int ls_inference_create(ls_inference **out, ls_model *model, ls_registry *own_registry,
                        const ls_registry *registry, const ls_gather *preprocessing,
                        const ls_host *host, ls_error *err)
{
    ls_inference *i = ls_alloc(host, sizeof *i);
    if (!i || pthread_mutex_init(&i->lock, NULL) != 0) {
        ls_free(host, i);
        ls_model_destroy(model, host);
        ls_registry_destroy(own_registry);
        return ls_fail(err, LS_ENOMEM, "out of memory for a trainer");
    }
    atomic_init(&i->references, 1);
    atomic_init(&i->snapshots, 0);
    i->model = model;
    i->own_registry = own_registry;
    i->host = host;
    i->desc = (ls_predictor_desc){.model = model,
                                  .registry = registry,
                                  .device = i->device,
                                  .preprocessing = *preprocessing,
                                  .host = host};
    *out = i;
    return LS_OK;
}

void ls_inference_release(ls_inference *i)
{
    if (!i || !was_last(&i->references))
        return;
    const ls_host *host = i->host;
    while (i->idle) {
        ls_predictor *p = i->idle;
        i->idle = ls_predictor_next(p);
        ls_predictor_destroy(p);
    }
    pthread_mutex_destroy(&i->lock);
    ls_model_destroy(i->model, host);
    ls_registry_destroy(i->own_registry);
    ls_free(host, i);
}

const ls_registry *ls_inference_registry(const ls_inference *i)
{
    return i->desc.registry;
}

void ls_inference_like(ls_inference *i, const char *device)
{
    const int name = (int)strcspn(device, "(");
    int number = 0, counted = 0;
    const ls_backend *b;
    sscanf(device + name, "(%d", &number);
    for (int k = 0; (b = ls_registry_at(i->desc.registry, k)) != NULL; k++)
        if (strncmp(b->name, device, (size_t)name) == 0 && b->name[name] == '\0')
            counted = b->counted;
    snprintf(i->device, sizeof i->device, "%.*s:%d", name, device, counted ? 1 : number);
}

/* ---- predictors are lent -------------------------------------------------------------------- */

static int borrow(ls_predictor **out, ls_inference *i, ls_error *err)
{
    pthread_mutex_lock(&i->lock);
    ls_predictor *p = i->idle;
    if (p)
        i->idle = ls_predictor_next(p);
    pthread_mutex_unlock(&i->lock);
    *out = p;
    return p ? LS_OK : ls_predictor_create(out, &i->desc, err);
}

static void give_back(ls_inference *i, ls_predictor *p)
{
    pthread_mutex_lock(&i->lock);
    ls_predictor_link(p, i->idle);
    i->idle = p;
    pthread_mutex_unlock(&i->lock);
}

/* ---- snapshots ------------------------------------------------------------------------------ */

int ls_snapshot_create(ls_snapshot **out, ls_inference *inference, const float *canonical,
                       uint64_t steps, ls_error *err)
{
    const ls_host *host = inference->host;
    ls_snapshot *s = ls_alloc(host, sizeof *s);
    if (s)
        s->canonical = ls_alloc_array(host, inference->model->floats, sizeof *s->canonical);
    if (!s || !s->canonical) {
        ls_free(host, s);
        return ls_fail(err, LS_ENOMEM, "out of memory for a snapshot of %zu weights",
                       inference->model->floats);
    }
    memcpy(s->canonical, canonical, inference->model->floats * sizeof *canonical);
    retain(&inference->references);
    atomic_init(&s->references, 1);
    s->inference = inference;
    s->id = atomic_fetch_add_explicit(&inference->snapshots, 1, memory_order_relaxed) + 1;
    s->steps = steps;
    *out = s;
    return LS_OK;
}

ls_snapshot *ls_snapshot_retain(ls_snapshot *s)
{
    retain(&s->references);
    return s;
}

void ls_snapshot_release(ls_snapshot *s)
{
    if (!s || !was_last(&s->references))
        return;
    ls_inference *inference = s->inference;
    ls_free(inference->host, s->canonical);
    ls_free(inference->host, s);
    ls_inference_release(inference);
}

void ls_snapshot_describe(const ls_snapshot *s, ls_snapshot_info *out)
{
    const ls_model *model = s->inference->model;
    *out = (ls_snapshot_info){.steps = s->steps,
                              .channels = model->input.c,
                              .height = model->input.h,
                              .width = model->input.w,
                              .classes = model->classes,
                              .parameters = model->parameters};
}

int ls_snapshot_predict(ls_snapshot *s, const uint8_t *images, uint32_t n, float *scores,
                        ls_error *err)
{
    ls_predictor *p;
    if (!s || (n > 0 && (!images || !scores)))
        return ls_fail(err, LS_EINVAL, "ls_snapshot_predict: no snapshot, images or scores");
    int status = borrow(&p, s->inference, err);
    if (status)
        return status;
    status = ls_predictor_run(p, s->canonical, s->id, images, n, scores, err);
    give_back(s->inference, p);
    return status;
}

int ls_snapshot_save(const ls_snapshot *s, const char *path, ls_error *err)
{
    return ls_safetensors_save(path, s->inference->model, s->canonical, s->inference->host, err);
}
