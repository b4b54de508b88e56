/* SPDX-License-Identifier: MIT */
/* The release of frozen parameters (release.h). */
#include "train/release.h"

#include "base/error.h"
#include "base/plural.h"
#include "engine/view.h"
#include "train/coordinator.h"

#include <stdio.h>
#include <string.h>

/* Returns the number of steps of the epochs in which parameters are frozen. */
static uint64_t held_steps(const struct ls_trainer *t)
{
    const uint32_t steps =
        ls_steps_per_epoch(ls_dataset_rows(t->data[LS_TRAIN]), (uint32_t)t->config.batch_size);
    return (uint64_t)t->config.freeze_epochs * steps;
}

/* Sets the model of the present epoch. */
static void choose_model(struct ls_trainer *t)
{
    t->holds = t->position.epoch < (uint32_t)t->config.freeze_epochs;
    ls_engine_set_model(t->engine, t->holds ? t->held : t->model, t->holds ? 0 : held_steps(t));
}

int ls_release_at_start(struct ls_trainer *t, ls_error *err)
{
    if (!t->held)
        return LS_OK;
    if (t->config.cluster.survives_loss)
        return ls_config_fail(err, &t->config, "freeze_epochs", LS_ECONFIG,
                              "a run whose cluster.on_host_loss is \"continue\" cannot release "
                              "parameters on the way: train the frozen epochs in a run of their "
                              "own, and begin the next one with init.weights");
    choose_model(t);
    return LS_OK;
}

int ls_release_check(struct ls_trainer *t, ls_error *err)
{
    if (!t->held || !t->members.cluster || !ls_engine_worker(t->engine, 0).device->ops->choices)
        return LS_OK;
    return ls_config_fail(err, &t->config, "freeze_epochs", LS_ECONFIG,
                          "several processes with GPUs cannot release parameters on the way: train "
                          "the frozen epochs in a run of their own, and begin the next one with "
                          "init.weights");
}

bool ls_release_is_due(const struct ls_trainer *t, uint64_t steps)
{
    const bool holds = t->position.epoch < (uint32_t)t->config.freeze_epochs;
    return t->held && (holds != t->holds || (!holds && steps == held_steps(t)));
}

/* Sets the optimizer's states to 0, except the weights of a moving average. */
static void begin_anew(struct ls_trainer *t)
{
    ls_engine_state *e = ls_engine_weights(t->engine);
    const int average = ls_optimizer_average(&t->config.optimizer);
    for (int i = 0; i < LS_STATES; i++)
        if (e->slot[i] && i != average)
            memset(e->slot[i], 0, t->model->floats * sizeof *e->slot[i]);
}

int ls_release(struct ls_trainer *t, uint64_t steps, ls_error *err)
{
    char when[80];
    ls_error cause;
    snprintf(when, sizeof when, "releasing frozen parameters after step %llu",
             (unsigned long long)steps);
    int status = ls_read_back(t, true, false, err);
    if (status)
        return status;
    choose_model(t);
    if (!t->holds && steps == held_steps(t)) {
        begin_anew(t);
        ls_log(t->host, LS_LOG_INFO, "after %d %s the parameters of \"freeze\" are trained too",
               t->config.freeze_epochs,
               ls_plural((uint64_t)t->config.freeze_epochs, "epoch", "epochs"));
    }
    for (;;) {
        status = ls_engine_renew(t->engine, steps, &cause);
        if (status == LS_OK)
            status = ls_engine_form(t->engine, NULL, steps, &cause);
        if (status == LS_OK)
            return LS_OK;
        if (!ls_is_fault(t, status))
            return ls_fail(err, status, "%s", cause.text);
        status = ls_recover(t, when, err);
        if (status)
            return status;
    }
}
