/* SPDX-License-Identifier: MIT */
/* Facts about a run in progress that the program shows (shown.h). */
#include "train/shown.h"

#include "base/host.h"
#include "checkpoint/checkpoint.h"
#include "train/trainer.h"

#include <dirent.h>
#include <sys/stat.h>

int ls_trainer_attach(ls_trainer *t, ls_sink *sink, ls_error *err)
{
    return ls_sinks_add(&t->records.sinks, sink, err);
}

ls_shape ls_trainer_input(const ls_trainer *t)
{
    return t->model->input;
}

int ls_trainer_layers(const ls_trainer *t)
{
    return t->model->layers;
}

ls_shown_layer ls_trainer_layer(const ls_trainer *t, int i)
{
    const ls_layer *layer = &t->model->layer[i];
    ls_shown_layer shown = {.name = layer->name,
                            .type = layer->type->name,
                            .out = layer->out,
                            .is_main = layer->params > 0 && layer->op.kind != LS_OP_BATCHNORM};
    for (int k = 0; k < layer->params; k++)
        shown.parameters += layer->param[k].count;
    return shown;
}

double ls_trainer_chance(const ls_trainer *t, double *std)
{
    const ls_config *c = &t->config;
    const bool small = c->init.rule == LS_INIT_NORMAL && c->init.std <= 0.02f;
    *std = (double)c->init.std;
    if (!small || c->init_weights || t->reported.summary.resumed_from[0] || t->model->classes < 2)
        return 0;
    return 1.0 / t->model->classes;
}

bool ls_newest_checkpoint(uint64_t *steps, double *saved, const char *run_dir)
{
    char path[LS_PATH_BYTES], file[LS_PATH_BYTES];
    bool found = false;
    DIR *all = opendir(ls_path_join(path, run_dir, "checkpoints"));
    for (struct dirent *e; all && (e = readdir(all)) != NULL;) {
        struct stat st;
        uint64_t n;
        if (!ls_checkpoint_is_named(e->d_name, &n) || (found && n <= *steps) ||
            stat(ls_path_join(file, path, e->d_name), &st) != 0)
            continue;
        found = true;
        *steps = n;
        *saved = (double)st.st_mtime;
    }
    if (all)
        closedir(all);
    return found;
}
