/* SPDX-License-Identifier: MIT */
/* The state that a trainer and all models of its model share for predictions (inference.h). */
#include "model/inference.h"

#include "base/error.h"
#include "base/thread_state.h"

#include <stdio.h>
#include <string.h>

int ls_inference_create(ls_inference **out, ls_network *model, const ls_registry *registry,
                        const ls_gather *preprocessing, const ls_host *host, ls_error *err)
{
    ls_inference *i = ls_alloc(host, sizeof *i);
    if (!i || pthread_mutex_init(&i->lock, NULL) != 0) {
        ls_free(host, i);
        ls_network_destroy(model, host);
        return ls_fail(err, LS_ENOMEM, "out of memory for a model");
    }
    atomic_init(&i->references, 1);
    atomic_init(&i->models, 0);
    i->model = model;
    i->preprocessing = *preprocessing;
    i->host = host;
    int status = ls_fork_mark_create(&i->mark, err);
    if (status == LS_OK && !registry)
        status = ls_registry_create(&i->own_registry, host, err);
    i->registry = registry ? registry : i->own_registry;
    if (status == LS_OK && model->card)
        status = ls_card_parse(&i->card, "card", model->card, host, err);
    if (status)
        ls_inference_release(i);
    else
        *out = i;
    return status;
}

bool ls_inference_is_inherited(const ls_inference *i)
{
    return ls_fork_mark_is_inherited(i->mark);
}

void ls_inference_expect_changes(ls_inference *i)
{
    i->card_changes = true;
}

const ls_registry *ls_inference_registry(const ls_inference *i)
{
    return i->registry;
}

const ls_backend *ls_inference_backend(const ls_registry *registry, const char *device)
{
    return ls_registry_find(registry, device, strcspn(device, ":("));
}

/* Writes i->device in the form of the config's key `devices`. With a *counted* back end the number
 * in that form is how many devices are used (plugin.h), so "cpu(3)" becomes "cpu:1". With another
 * back end the number is the device's index, so "cuda(3)" becomes "cuda:3". */
void ls_inference_use_kind_of(ls_inference *i, const char *device)
{
    const int name = (int)strcspn(device, "(");
    const ls_backend *b = ls_inference_backend(i->registry, device);
    int number = 0;
    sscanf(device + name, "(%d", &number);
    snprintf(i->device, sizeof i->device, "%.*s:%d", name, device, b && b->counted ? 1 : number);
}

int ls_inference_predict_on(ls_inference *i, const char *device, ls_error *err)
{
    const int n = snprintf(i->device, sizeof i->device, "%s", device);
    return (size_t)n < sizeof i->device
               ? LS_OK
               : ls_fail(err, LS_EINVAL, "device \"%.60s…\": expected one, such as \"cuda:0\"",
                         device);
}

void ls_inference_release(ls_inference *i)
{
    if (!i || !ls_was_last(&i->references))
        return;
    const ls_host *host = i->host;
    ls_predictors_close(i);
    pthread_mutex_destroy(&i->lock);
    ls_fork_mark_destroy(i->mark);
    ls_card_fini(&i->card);
    ls_network_destroy(i->model, host);
    ls_registry_destroy(i->own_registry);
    ls_free(host, i);
}
