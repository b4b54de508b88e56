/* SPDX-License-Identifier: MIT */
/* Holds rows out for validation: divides a training split into two datasets, one from which the run
 * learns and one on which it is evaluated. Each is a list of row numbers of the training split,
 * whose rows are not copied. */
#include "base/error.h"
#include "base/host.h"
#include "base/rng.h"
#include "data/kinds.h"

#include <stdlib.h>
#include <string.h>

/* The training split that was divided. Both parts use it; the part that is closed last closes
 * it. */
typedef struct whole {
    ls_dataset *all;
    const ls_host *host;
    int parts; /* number of open parts, plus 1 while divide() runs */
} whole;

/* One of the two datasets into which the training split was divided. */
typedef struct part {
    ls_dataset base;
    whole *of;
    uint32_t *row; /* [base.info.rows]: row numbers in of->all */
} part;

static int part_read(const ls_dataset *ds, const uint32_t *rows, uint32_t count, void *images,
                     void *targets, ls_error *err)
{
    const part *p = (const part *)ds;
    const size_t bytes = ls_dataset_image_bytes(ds), target = ls_dataset_target_bytes(ds);
    int status = LS_OK;
    for (uint32_t i = 0; status == LS_OK && i < count; i++)
        status = ls_dataset_read(p->of->all, &p->row[rows[i]], 1, (char *)images + i * bytes,
                                 (char *)targets + i * target, err);
    return status;
}

static ls_dataset_view part_view(const ls_dataset *ds)
{
    const part *p = (const part *)ds;
    ls_dataset_view view = ls_dataset_resident(p->of->all);
    view.row = p->row;
    return view;
}

static void part_close(ls_dataset *ds)
{
    part *p = (part *)ds;
    const ls_host *host = p->of->host;
    if (--p->of->parts == 0) {
        ls_dataset_close(p->of->all);
        ls_free(host, p->of);
    }
    ls_free(host, p->row);
    ls_free(host, p);
}

static const ls_dataset_ops part_ops = {
    .size = sizeof(ls_dataset_ops), .read = part_read, .view = part_view, .close = part_close};

static int open_part(ls_dataset **out, whole *of, const char *split, uint32_t rows, ls_error *err)
{
    part *p = ls_alloc(of->host, sizeof *p);
    uint32_t *row = ls_alloc_array(of->host, rows, sizeof *row);
    if (!p || !row) {
        ls_free(of->host, p);
        ls_free(of->host, row);
        return ls_fail(err, LS_ENOMEM, "%s: out of memory", of->all->info.name);
    }
    *p = (part){{&part_ops, of->all->info}, of, row};
    p->base.info.split = split;
    p->base.info.rows = rows;
    of->parts++;
    *out = &p->base;
    return LS_OK;
}

/* A row of the divided split, with its label and its random number. */
typedef struct lot {
    int32_t label;
    uint32_t row;
    uint64_t drawn;
} lot;

static int by_lot(const void *a, const void *b)
{
    const lot *x = a, *y = b;
    if (x->label != y->label)
        return x->label < y->label ? -1 : 1;
    if (x->drawn != y->drawn)
        return x->drawn < y->drawn ? -1 : 1;
    return (x->row > y->row) - (x->row < y->row);
}

/* Chooses the rows of a fold and sets held[row] for each of them. The rows, sorted by class and by
 * random number, are dealt to the folds in turn. Each row is in one fold, and the folds differ by
 * at most one row, in each class too. Returns the number of chosen rows. */
static uint32_t choose_fold(bool *held, const lot *lots, uint32_t rows, const ls_data_keys *keys)
{
    const uint32_t folds = (uint32_t)(1 / keys->validation + 0.5);
    uint32_t count = 0;
    for (uint32_t i = (uint32_t)keys->fold - 1; i < rows; i += folds, count++)
        held[lots[i].row] = true;
    return count;
}

/* Chooses the rows for validation and sets held[row] for each of them. Each row draws a random
 * number; in each class, the fraction keys.validation of its rows with the lowest numbers is
 * chosen. If targets are vectors, all rows count as one class. Returns the number of chosen
 * rows. */
static uint32_t choose_rows(bool *held, lot *lots, const ls_dataset *all,
                            const ls_dataset_spec *spec)
{
    const ls_dataset_view view = ls_dataset_resident(all);
    const uint32_t rows = all->info.rows;
    uint32_t count = 0;
    for (uint32_t r = 0; r < rows; r++) {
        uint32_t w[4];
        ls_rng_words(w, spec->seed, LS_STREAM_HOLD_OUT, 0, r);
        lots[r] = (lot){all->info.targets ? 0 : view.labels[r], r, (uint64_t)w[0] << 32 | w[1]};
    }
    qsort(lots, rows, sizeof *lots, by_lot);
    if (spec->keys.fold)
        return choose_fold(held, lots, rows, &spec->keys);
    for (uint32_t first = 0, end; first < rows; first = end) {
        for (end = first; end < rows && lots[end].label == lots[first].label; end++)
            ;
        const uint32_t share = (uint32_t)((end - first) * spec->keys.validation + 0.5);
        for (uint32_t i = first; i < first + share; i++)
            held[lots[i].row] = true;
        count += share;
    }
    return count;
}

static int share_out(ls_dataset *split[2], whole *of, const ls_opening *o)
{
    const uint32_t rows = of->all->info.rows;
    bool *held = ls_alloc_array(of->host, rows, sizeof *held);
    lot *lots = ls_alloc_array(of->host, rows, sizeof *lots);
    uint32_t at[2] = {0, 0};
    int status =
        held && lots ? LS_OK : ls_fail(o->err, LS_ENOMEM, "out of memory for %u lots", rows);
    const uint32_t count = status ? 0 : choose_rows(held, lots, of->all, o->spec);
    if (status == LS_OK && (count == 0 || count == rows))
        status =
            ls_dataset_refuse(o, "data.validation", "%g of the %u training rows is %s of them",
                              o->spec->keys.validation, (unsigned)rows, count ? "all" : "none");
    if (status == LS_OK)
        status = open_part(&split[0], of, "train", rows - count, o->err);
    if (status == LS_OK)
        status = open_part(&split[1], of, "validation", count, o->err);
    for (uint32_t r = 0; status == LS_OK && r < rows; r++)
        ((part *)split[held[r]])->row[at[held[r]]++] = r;
    ls_free(of->host, lots);
    ls_free(of->host, held);
    return status;
}

/* Divides `all` into the training split split[0] and the validation split split[1]. */
static int divide(ls_dataset *split[2], ls_dataset *all, const ls_opening *o)
{
    whole *of = ls_alloc(o->host, sizeof *of);
    if (!of)
        return ls_fail(o->err, LS_ENOMEM, "%s: out of memory", all->info.name);
    *of = (whole){all, o->host, 1};
    int status = share_out(split, of, o);
    for (int s = 0; status && s < 2; s++) {
        ls_dataset_close(split[s]);
        split[s] = NULL;
    }
    /* after a failure the parts are closed, and `all` still belongs to the caller */
    if (--of->parts == 0)
        ls_free(o->host, of);
    return status;
}

int ls_hold_out(ls_dataset *split[2], const ls_opening *o)
{
    ls_dataset *own[2] = {NULL, NULL};
    if (!ls_dataset_resident(split[0]).images)
        return ls_dataset_refuse(o, "data.validation",
                                 "rows that are streamed cannot be held out; give the source "
                                 "test rows");
    const int folds = (int)(1 / o->spec->keys.validation + 0.5), fold = o->spec->keys.fold;
    if (fold > 0 && folds < 2)
        return ls_dataset_refuse(o, "data.fold",
                                 "expected a data.validation of at most 0.5, found %g",
                                 o->spec->keys.validation);
    if (fold > folds)
        return ls_dataset_refuse(o, "data.fold",
                                 "expected a fold from 1 to %d, as data.validation is %g, found %d",
                                 folds, o->spec->keys.validation, fold);
    int status = divide(own, split[0], o);
    if (status)
        return status;
    const bool kept = o->spec->keys.keep_test && !o->spec->keys.fold && split[1]->info.rows > 0;
    ls_dataset_close(kept ? own[1] : split[1]);
    split[0] = own[0];
    split[1] = kept ? split[1] : own[1];
    return LS_OK;
}
