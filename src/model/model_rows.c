/* SPDX-License-Identifier: MIT */
/* Rows in a file, for a model in memory (ls_rows in model.h). */
#include "model/inference.h"

#include "base/error.h"
#include "base/sized.h"
#include "base/stack.h"
#include "base/thread_state.h"
#include "model/evaluate.h"
#include "model/outputs.h"
#include "model/rows.h"

#include <lockstep/model.h>

struct ls_rows {
    ls_model *model;
    ls_trained view; /* view of `model` */
    ls_trained_rows read;
    char *path;
};

static int view_of(ls_trained *out, const ls_model *m, ls_error *err)
{
    const ls_inference *i = m->inference;
    const ls_card *card = ls_card_of_model(m);
    if (!card->config.doc || !card->prep)
        return ls_fail(err, LS_EUNSUPPORTED,
                       "the model has no description of its rows; pass rows to ls_model_predict");
    return ls_trained_view(out, card, i->model, m->canonical, i->host, err);
}

static int read_rows(ls_rows *r, const char *path, const ls_rows_options *o, ls_error *err)
{
    char *paths[1];
    const ls_host *host = r->model->inference->host;
    int status = view_of(&r->view, r->model, err);
    if (status == LS_OK)
        status = ls_path_copy(&r->path, path, host, err);
    if (status)
        return status;
    r->view.input_format.limit = o->limit;
    paths[0] = r->path;
    ls_c_locale locale = ls_c_locale_enter();
    status = ls_trained_rows_open(&r->read, paths, 1, err);
    ls_c_locale_leave(locale);
    return status;
}

int ls_rows_open(ls_rows **out, ls_model *model, const char *path, const ls_rows_options *options,
                 ls_error *err)
{
    LS_OWN_ARITHMETIC;
    ls_rows_options o = {.size = sizeof o};
    if (out)
        *out = NULL;
    if (!out || !model || !path)
        return ls_fail(err, LS_EINVAL, "ls_rows_open: no model, no path, or no room for the rows");
    int status = options ? ls_sized_take(&o, sizeof o, options, "ls_rows_options", err) : LS_OK;
    if (status == LS_OK)
        status = ls_stack_check(LS_OPEN_STACK_BYTES, "ls_rows_open", err);
    if (status)
        return status;
    ls_rows *r = ls_alloc(model->inference->host, sizeof *r);
    if (!r)
        return ls_fail(err, LS_ENOMEM, "out of memory for rows");
    r->model = ls_model_retain(model);
    r->view.host = model->inference->host;
    r->read.t = &r->view;
    status = read_rows(r, path, &o, err);
    if (status)
        ls_rows_close(r);
    else
        *out = r;
    return status;
}

uint32_t ls_rows_count(const ls_rows *r)
{
    return r ? r->read.rows : 0;
}

const char *ls_rows_name(const ls_rows *r, uint32_t row)
{
    return r && row < r->read.rows && r->read.file ? r->read.file[row].path : NULL;
}

const char *ls_rows_why(const ls_rows *r, uint32_t row)
{
    return r && row < r->read.rows && r->read.why ? r->read.why[row] : NULL;
}

int ls_rows_predict(const ls_rows *r, uint32_t first, uint32_t n, int form, void *outputs,
                    size_t capacity, ls_error *err)
{
    LS_OWN_ARITHMETIC;
    if (!r)
        return ls_fail(err, LS_EINVAL, "ls_rows_predict: no rows");
    if (first > r->read.rows || n > r->read.rows - first)
        return ls_fail(err, LS_EINVAL, "ls_rows_predict: %u rows from row %u on: there are %u",
                       (unsigned)n, (unsigned)first, (unsigned)r->read.rows);
    int status = ls_model_check_call(r->model, "ls_rows_predict", n, form, outputs, capacity, err);
    if (status)
        return status;
    const ls_network *model = r->model->inference->model;
    const size_t each = (size_t)model->classes;
    const size_t bytes = (size_t)model->input.c * (size_t)model->input.h * (size_t)model->input.w *
                         (r->view.input_format.floats ? sizeof(float) : 1);
    status = ls_predictor_run(r->model, r->read.images + first * bytes, LS_ROWS_READY, n, form,
                              outputs, err);
    for (uint32_t i = 0; status == LS_OK && i < n; i++)
        if (ls_rows_why(r, first + i))
            ls_outputs_put_unknown(outputs, i * each, each, form);
    return status;
}

static void describe(ls_evaluation *out, const ls_trained *view, const ls_trained_evaluation *e)
{
    const double *value = e->measured.value;
    const ls_metric metric =
        ls_metric_to_report(view->config.loss, view->config.metrics, &e->measured);
    *out = (ls_evaluation){.rows = e->data->rows,
                           .loss = value[LS_METRIC_LOSS],
                           .metric = ls_metric_names[metric],
                           .metric_value = value[metric]};
    ls_measured_tell(out, e->wanted, &e->measured);
}

LS_AFTER_STACK_CHECK static int evaluate(ls_evaluation *out, const ls_model *model,
                                         const char *path, uint32_t limit, ls_error *err)
{
    const ls_inference *i = model->inference;
    ls_trained view = {.host = i->host};
    ls_trained_evaluation e = {0};
    int status = view_of(&view, model, err);
    view.input_format.limit = limit;
    if (status == LS_OK)
        status = ls_trained_view_data(&view, path, err);
    if (status == LS_OK)
        status = ls_trained_evaluate(&e, &view, false, false, i->registry, i->device, err);
    if (status == LS_OK)
        describe(out, &view, &e);
    ls_trained_evaluation_free(&e, &view);
    ls_trained_view_end(&view);
    return status;
}

int ls_model_evaluate(const ls_model *model, const char *path, const ls_rows_options *options,
                      ls_evaluation *out, ls_error *err)
{
    LS_OWN_ARITHMETIC;
    ls_evaluation result = {0};
    ls_rows_options o = {.size = sizeof o};
    if (!model || !path || !out)
        return ls_fail(err, LS_EINVAL,
                       "ls_model_evaluate: no model, no path, or no room for the result");
    int status = ls_sized_give(out, &result, sizeof result, "ls_evaluation", err);
    if (status == LS_OK && options)
        status = ls_sized_take(&o, sizeof o, options, "ls_rows_options", err);
    if (status == LS_OK)
        status = ls_stack_check(LS_PREDICT_STACK_BYTES, "ls_model_evaluate", err);
    if (status)
        return status;
    ls_c_locale locale = ls_c_locale_enter();
    status = evaluate(&result, model, path, o.limit, err);
    ls_c_locale_leave(locale);
    return status ? status : ls_sized_give(out, &result, sizeof result, "ls_evaluation", err);
}

void ls_rows_close(ls_rows *r)
{
    if (!r)
        return;
    const ls_host *host = r->model->inference->host;
    ls_trained_rows_close(&r->read);
    ls_trained_view_end(&r->view);
    ls_free(host, r->path);
    ls_model_release(r->model); /* last, because the rows refer to it */
    ls_free(host, r);
}
