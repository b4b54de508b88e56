/* SPDX-License-Identifier: MIT */
/* Trains and predicts folds (folds.h). The runs are ordinary ones, in OUT.folds/1, 2, …, with the
 * keys data.validation = 1 / K and data.fold = 1, 2, … */
#include "cli/folds.h"

#include "base/error.h"
#include "base/host.h"
#include "base/plural.h"
#include "cli/overwrite.h"
#include "model/evaluate.h"
#include "model/wrong.h"

#include <dirent.h>
#include <math.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

enum { SHOWN = 10 }; /* largest number of wrong rows that are printed */

/* State of the folds. */
typedef struct session {
    const cli_arguments *a;
    const ls_registry *registry;
    cli_view view;
    ls_host host;
    char dir[LS_PATH_BYTES]; /* the directory of the runs */
    ls_wrong wrong;
    double loss;   /* sum of the losses of all rows */
    double weight; /* sum of the weights of all rows; their number, if they have none */
} session;

static void on_progress(void *user, const ls_progress *progress)
{
    cli_view_progress(&((session *)user)->view, progress);
}

/* ---- one fold -------------------------------------------------------------------------------- */

/* Predicts the rows that the run in `dir` was not trained on. */
static int predict_fold(session *s, const cli_list *set, const char *dir, ls_error *err)
{
    ls_trained t;
    cli_directories places;
    ls_trained_evaluation e = {0};
    const ls_trained_options o = {
        .path = dir,
        .needs_data = true,
        .trainer = cli_options(&places, NULL, set, NULL, true, &s->host),
    };
    int status = ls_trained_open(&t, &o, err);
    if (status)
        return status;
    status = ls_trained_evaluate(&e, &t, false, true, s->registry, NULL, err);
    if (status == LS_OK)
        status = ls_wrong_add(&s->wrong, &t, false, e.scores, err);
    if (status == LS_OK) {
        s->loss += e.weight > 0 ? e.measured.value[LS_METRIC_LOSS] * e.weight : 0;
        s->weight += e.weight;
    }
    ls_trained_evaluation_free(&e, &t);
    ls_trained_close(&t);
    return status;
}

static int train_fold(session *s, int fold, ls_error *err)
{
    char validation[64], number[64], run_dir[LS_PATH_BYTES + 32], dir[LS_PATH_BYTES + 16];
    cli_directories places;
    cli_list set = s->a->set;
    const cli_list none = {0};
    ls_trainer *trainer;
    const ls_trainer_callbacks callbacks = {
        .size = sizeof callbacks, .progress = on_progress, .user = s};
    snprintf(dir, sizeof dir, "%s/%d", s->dir, fold);
    snprintf(validation, sizeof validation, "data.validation=%.17g", 1.0 / s->a->folds);
    snprintf(number, sizeof number, "data.fold=%d", fold);
    if (!cli_assignment(run_dir, sizeof run_dir, "run_dir", dir))
        return ls_fail(err, LS_EINVAL, "--wrong %.200s: quotes and backslashes are not allowed",
                       s->a->wrong);
    set.item[set.count++] = validation;
    set.item[set.count++] = number;
    set.item[set.count++] = run_dir;
    ls_trainer_options o =
        cli_options(&places, s->a->config, &set, s->registry, s->view.quiet, &s->host);
    o.callbacks = &callbacks;
    int status = ls_trainer_open(&trainer, &o, err);
    if (status)
        return status;
    cli_view_name_rows(&s->view, ls_trainer_summary(trainer));
    status = cli_run(trainer, err);
    cli_view_clear(&s->view);
    const int closed = ls_trainer_close(trainer, status ? NULL : err);
    status = status ? status : closed;
    return status ? status : predict_fold(s, &none, dir, err);
}

/* ---- results --------------------------------------------------------------------------------- */

/* Returns the total size in bytes of the files in a directory and, `depth` levels deep, in its
 * subdirectories. */
static uint64_t directory_bytes(const char *path, int depth)
{
    uint64_t bytes = 0;
    char inside[LS_PATH_BYTES];
    struct stat st;
    DIR *dir = opendir(path);
    for (const struct dirent *e = dir ? readdir(dir) : NULL; e; e = readdir(dir)) {
        if (strcmp(e->d_name, ".") == 0 || strcmp(e->d_name, "..") == 0 ||
            lstat(ls_path_join(inside, path, e->d_name), &st) != 0)
            continue;
        if (S_ISDIR(st.st_mode) && depth > 0)
            bytes += directory_bytes(inside, depth - 1);
        else if (S_ISREG(st.st_mode))
            bytes += (uint64_t)st.st_size;
    }
    if (dir)
        closedir(dir);
    return bytes;
}

void cli_wrong_print(const ls_wrong *w, size_t most)
{
    const size_t shown = w->count < most ? w->count : most;
    for (size_t i = 0; i < shown; i++) {
        const ls_wrong_row *r = &w->row[i];
        if (r->file)
            printf("  %s", r->file);
        else if (r->line)
            printf("  line %u", (unsigned)r->line);
        else
            printf("  row %u", (unsigned)r->row);
        if (w->targets > 1)
            printf(", target %d", r->target);
        printf(": label %s, predicted %s (%s %.4g", r->label, r->prediction,
               w->values ? "error" : "probability", r->size);
        if (!w->values)
            printf(", of the label %.4g", r->of_label);
        puts(")");
    }
}

static void print_results(session *s)
{
    const ls_wrong *w = &s->wrong;
    const unsigned long long rows = (unsigned long long)w->rows * (unsigned)w->targets;
    printf("out of fold: loss %.4f", s->weight > 0 ? s->loss / s->weight : 0);
    if (!w->values)
        printf(", %llu of %llu %s predicted wrong (acc %.4f)", (unsigned long long)w->count, rows,
               ls_plural(rows, "row is", "rows are"), 1 - (double)w->count / (double)rows);
    printf("; %s has them, the %s first\n", s->a->wrong,
           w->values ? "largest errors" : "least probable labels");
    if (w->count > 0)
        puts(w->values ? "largest errors:" : "suspicious labels:");
    cli_wrong_print(w, SHOWN);
}

static int fail_fold(const session *s, int fold, int status, const ls_error *err)
{
    struct stat st;
    const int code = cli_fail(status, err->text);
    cli_say("%s in fold %d of %d; %s was not written%s%s",
            status == LS_EINTERRUPTED ? "interrupted" : "stopped", fold, s->a->folds, s->a->wrong,
            stat(s->dir, &st) == 0 ? "; before the next attempt remove the runs in " : "",
            stat(s->dir, &st) == 0 ? s->dir : "");
    return status == LS_EINTERRUPTED ? EXIT_INTERRUPTED : code;
}

static int train_all(session *s)
{
    ls_error err = {0};
    int status = LS_OK, fold = 1;
    for (; status == LS_OK && fold <= s->a->folds; fold++) {
        if (!s->view.quiet)
            fprintf(stderr, "%sfold %d of %d%s\n", s->view.colour ? "\033[1m" : "", fold,
                    s->a->folds, s->view.colour ? "\033[0m" : "");
        status = cli_interrupted() ? ls_fail(&err, LS_EINTERRUPTED, "interrupted")
                                   : train_fold(s, fold, &err);
    }
    if (status)
        return fail_fold(s, fold - 1, status, &err);
    status = ls_wrong_write(&s->wrong, s->a->wrong, &err);
    if (status)
        return cli_fail(status, err.text);
    print_results(s);
    cli_say("%s has %d %s, %.1f MB; it is not needed any more", s->dir, s->a->folds,
            ls_plural((uint64_t)s->a->folds, "run", "runs"),
            (double)directory_bytes(s->dir, 3) * 1e-6);
    return cli_flush();
}

int cli_folds(const cli_arguments *a, const ls_registry *registry)
{
    struct stat st;
    session s = {.a = a, .registry = registry};
    const size_t length = strlen(a->wrong) - strlen(".csv");
    s.host = (ls_host){.size = sizeof s.host, .log = cli_view_log, .user = &s.view};
    s.wrong.host = &s.host;
    cli_view_init(&s.view, a->quiet);
    s.view.no_tables = true;
    snprintf(s.dir, sizeof s.dir, "%.*s.folds", (int)length, a->wrong);
    if (stat(s.dir, &st) == 0)
        return cli_usage(NULL, "--wrong: remove the runs of an earlier call first: ", s.dir);
    cli_directories places;
    const ls_trainer_options o = cli_options(&places, a->config, &a->set, registry, true, NULL);
    int code = cli_spare_config(NULL, "wrong", a->wrong, &o);
    if (code)
        return code;
    cli_catch_signals();
    code = train_all(&s);
    ls_wrong_free(&s.wrong);
    return code;
}
