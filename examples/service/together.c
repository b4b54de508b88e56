#include "together.h"

#include "report.h"

#include <stdlib.h>
#include <string.h>

enum { GROUP = 64 /* rows, unless one asks for more */ };

typedef struct together_ask {
    const uint8_t *rows;
    uint32_t n;
    size_t row_bytes, outputs;
    float *scores;
    uint64_t step;
    int done, status;
    ls_error err;
    pthread_cond_t turn; /* it is done, or may lead */
    struct together_ask *next;
} ask;

void together_init(together *t, board *from, int most)
{
    *t = (together){.most = most, .from = from};
    t->last = &t->first;
    pthread_mutex_init(&t->lock, NULL);
}

void together_fini(together *t)
{
    pthread_mutex_destroy(&t->lock);
}

/* ---- the queue: with the lock --------------------------------------------------------------- */

static void join(together *t, ask *a)
{
    a->next = NULL;
    *t->last = a;
    t->last = &a->next;
}

/* As many of the first as make a group, and at least one; returns how many rows. */
static uint32_t take_group(together *t, ask **group)
{
    uint32_t rows = 0;
    ask **end = &t->first;
    while (*end && (rows == 0 || rows + (*end)->n <= GROUP)) {
        rows += (*end)->n;
        end = &(*end)->next;
    }
    *group = t->first;
    t->first = *end;
    if (!t->first)
        t->last = &t->first;
    *end = NULL;
    return rows;
}

/* ---- a group: without it -------------------------------------------------------------------- */

static int predict_side_by_side(ls_snapshot *s, ask *group, uint32_t n, ls_error *err)
{
    const size_t bytes = group->row_bytes, outputs = group->outputs;
    uint8_t *rows = malloc(n * bytes);
    float *scores = malloc(n * outputs * sizeof *scores);
    int status = rows && scores ? LS_OK : fail(err, LS_ENOMEM, "out of memory for predictions");
    uint32_t at = 0;
    for (const ask *a = group; status == LS_OK && a; at += a->n, a = a->next)
        memcpy(rows + at * bytes, a->rows, a->n * bytes);
    if (status == LS_OK)
        status = ls_snapshot_predict(s, rows, n, scores, err);
    at = 0;
    for (const ask *a = group; status == LS_OK && a; at += a->n, a = a->next)
        memcpy(a->scores, scores + at * outputs, a->n * outputs * sizeof *scores);
    free(scores);
    free(rows);
    return status;
}

static void predict_group(together *t, ask *group, uint32_t n)
{
    ls_snapshot_info info = {0};
    ls_error err;
    int status = LS_EAGAIN;
    ls_snapshot *s = board_take(t->from);
    if (!s) {
        fail(&err, LS_EAGAIN, "there is no model yet; GET /healthz tells more");
    } else {
        ls_snapshot_describe(s, &info);
        status = group->next ? predict_side_by_side(s, group, n, &err)
                             : ls_snapshot_predict(s, group->rows, n, group->scores, &err);
    }
    ls_snapshot_release(s);
    for (ask *a = group; a; a = a->next) {
        a->step = info.steps;
        a->status = status;
        if (status)
            a->err = err;
    }
}

/* With the lock, which is given up meanwhile. Behind the last look at an ask its thread may be gone. */
static void lead(together *t)
{
    ask *group, *next;
    const uint32_t n = take_group(t, &group);
    t->running++;
    pthread_mutex_unlock(&t->lock);
    predict_group(t, group, n);
    pthread_mutex_lock(&t->lock);
    t->running--;
    for (ask *a = group; a; a = next) {
        next = a->next;
        a->done = 1;
        pthread_cond_signal(&a->turn);
    }
    if (t->first)
        pthread_cond_signal(&t->first->turn);
}

int together_predict(together *t, const uint8_t *rows, uint32_t n, size_t row_bytes, size_t outputs,
                     float *scores, uint64_t *step, ls_error *err)
{
    ask a = {.rows = rows,
             .n = n,
             .row_bytes = row_bytes,
             .outputs = outputs,
             .scores = scores,
             .turn = PTHREAD_COND_INITIALIZER};
    pthread_mutex_lock(&t->lock);
    join(t, &a);
    while (!a.done) {
        if (t->first && t->running < t->most)
            lead(t);
        else
            pthread_cond_wait(&a.turn, &t->lock);
    }
    pthread_mutex_unlock(&t->lock);
    pthread_cond_destroy(&a.turn);
    *step = a.step;
    if (a.status && err)
        *err = a.err;
    return a.status;
}
