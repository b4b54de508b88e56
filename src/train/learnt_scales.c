/* SPDX-License-Identifier: MIT */
/* Learnt scales of rows and targets (learnt_scales.h). */
#include "train/learnt_scales.h"

#include "base/error.h"
#include "base/host.h"
#include "config/card.h"
#include "data/own_rows.h"
#include "nn/safetensors.h"
#include "train/coordinator.h"

int ls_write_card(ls_network *model, const struct ls_trainer *t, ls_error *err)
{
    const ls_dataset_about *about;
    const ls_dataset_info *info = ls_dataset_describe(t->data[LS_TRAIN]);
    const char *const *names = info->class_name;
    if (!names && ls_config_find_data(&about, &t->config, NULL) == LS_OK)
        names = about->class_name;
    return ls_card_write(model, &t->config, names, info->features, info->prep, t->host, err);
}

int ls_renew_card(struct ls_trainer *t, ls_error *err)
{
    ls_network *model = (ls_network *)(uintptr_t)t->model;
    char *old = model->card;
    if (!t->card_is_old)
        return LS_OK;
    int status = ls_write_card(model, t, err);
    if (status) {
        model->card = old;
        return status;
    }
    ls_free(t->host, old);
    t->card_is_old = false;
    return LS_OK;
}

/* Takes over the scales in the card `text`, which is part of `path`. */
static int adopt(struct ls_trainer *t, const char *text, const char *path, ls_error *err)
{
    ls_card card;
    int status = ls_card_parse(&card, path, text, t->host, err);
    if (status)
        return status;
    status = ls_own_rows_adopt(t->data[LS_TRAIN], card.prep, path, err);
    ls_card_fini(&card);
    t->card_is_old |= status == LS_OK;
    return status;
}

int ls_adopt_scales(struct ls_trainer *t, const ls_tensor_file *file, ls_error *err)
{
    const char *text = ls_tensor_file_card(file);
    if (!text || !ls_own_rows_learn(t->data[LS_TRAIN]))
        return LS_OK;
    return adopt(t, text, ls_tensor_file_path(file), err);
}

int ls_share_scales(struct ls_trainer *t, ls_error *err)
{
    char *text = NULL;
    if (!ls_own_rows_learn(t->data[LS_TRAIN]))
        return LS_OK;
    int status = ls_renew_card(t, err);
    if (status == LS_OK && ls_members_first(t)) {
        text = ls_strdup(t->host, t->model->card);
        status = text ? LS_OK : ls_fail(err, LS_ENOMEM, "out of memory for the model's card");
    }
    if (status == LS_OK)
        status = ls_members_share_text(&text, t, err);
    if (status == LS_OK && !ls_members_first(t))
        status = adopt(t, text, "the first host", err);
    ls_free(t->host, text);
    return status;
}
