/* SPDX-License-Identifier: MIT */
/* Log messages about the data of a run: a description, and warnings about data that look like a
 * mistake. */
#include "train/doubts.h"

#include "base/host.h"
#include "base/plural.h"
#include "data/columns.h"
#include "merge/weights.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

/* Limits for logging and for the examination of rows. */
enum {
    COLUMNS_LISTED = 30,       /* largest number of columns that are listed */
    ROWS_EXAMINED = 2000,      /* largest number of rows whose inputs are examined */
    VALUES_EXAMINED = 1 << 20, /* largest number of values that are examined */
    CLASS_VALUES = 20,         /* largest number of different values that look like classes */
    MOST_CLASSES = 1 << 16
};

typedef struct checked_data {
    const ls_config *c;
    const ls_dataset_info *info;
    ls_dataset_view view; /* the training rows */
    uint32_t rows;        /* number of rows whose inputs are examined */
    size_t each;          /* number of values of a row */
    const ls_host *host;
} checked_data;

static uint32_t row_at(const checked_data *d, uint32_t i)
{
    return d->view.row ? d->view.row[i] : i;
}

/* ---- description of the data ---------------------------------------------------------------- */

static void log_columns(const checked_data *d)
{
    char line[LS_COLUMN_LINE];
    const ls_dataset_info *info = d->info;
    if (info->columns == 0)
        return;
    ls_column_head(line);
    ls_log(d->host, LS_LOG_INFO, "%s", line);
    for (int i = 0; i < info->columns && i < COLUMNS_LISTED; i++) {
        ls_column_line(line, &info->column[i]);
        ls_log(d->host, LS_LOG_INFO, "%s", line);
    }
    if (info->columns > COLUMNS_LISTED)
        ls_log(d->host, LS_LOG_INFO, "  … %d more %s", info->columns - COLUMNS_LISTED,
               ls_plural((uint64_t)(info->columns - COLUMNS_LISTED), "column", "columns"));
}

/* Warns if floats near the mean of numbers are too far apart for their deviation. */
static void warn_of_floats(const checked_data *d, const char *what, double mean, double deviation)
{
    const double apart = ldexp(fabs(mean), -23);
    if (apart > 0.02 * deviation)
        ls_log(d->host, LS_LOG_WARNING,
               "%s: floats near %.9g are %.6g apart, and the deviation is %.4g: subtract %.9g "
               "before they become floats",
               what, mean, ldexp(1, ilogb(mean) - 23), deviation, mean);
}

/* Warns of targets that predictions as floats do not hold, and of floats that have lost digits. */
static void warn_of_offsets(const checked_data *d)
{
    const ls_prep *p = d->info->prep;
    for (int i = 0; p && i < p->targets; i++)
        warn_of_floats(d,
                       p->target_wide
                           ? "targets: predictions of ONNX, and of C without LS_OUTPUT_F64"
                           : "targets",
                       p->target_mean[i], ls_prep_divisor(p->target_deviation[i]));
    for (int i = 0; p && !p->wide && i < p->scales; i++)
        warn_of_floats(d, "rows", p->mean[i], ls_prep_divisor(p->deviation[i]));
}

static void log_scaling(const checked_data *d)
{
    const ls_prep *p = d->info->prep;
    int scaled = 0;
    double clip = p ? p->clip : 0;
    for (int i = 0; p && i < p->columns; i++) {
        scaled += p->column[i].scaled;
        clip = fmax(clip, p->column[i].clip);
    }
    if (scaled)
        ls_log(d->host, LS_LOG_INFO,
               "data.standardize: %d %s (value - mean) / deviation; false leaves %s", scaled,
               ls_plural((uint64_t)scaled, "column becomes", "columns become"),
               ls_plural((uint64_t)scaled, "it", "them"));
    if (clip > 0)
        ls_log(
            d->host, LS_LOG_INFO,
            "data.clip: what is beyond %g deviations of its column's mean counts as %g; 0 leaves "
            "it",
            clip, clip);
    if (p && p->targets == 1)
        ls_log(d->host, LS_LOG_INFO,
               "data.standardize_target: the network learns (target - %.4g) / %.4g; results are "
               "reported in the target's own unit; false leaves the target as it is",
               p->target_mean[0], p->target_deviation[0]);
    else if (p && p->targets > 1)
        ls_log(d->host, LS_LOG_INFO,
               "data.standardize_target: the network learns each of the %d targets as (target - "
               "mean) / deviation; predictions are in the targets' own units, and loss and mae are "
               "those of the scaled targets unless all deviations are equal; false leaves the "
               "targets as they are",
               p->targets);
}

/* ---- columns -------------------------------------------------------------------------------- */

static void warn_of_column(const checked_data *d, const ls_column_summary *c)
{
    const uint32_t present = c->rows - c->missing;
    if (c->counts && c->use == LS_COLUMN_NUMBER)
        ls_log(d->host, LS_LOG_WARNING,
               "column \"%.60s\" counts the rows, so it tells nothing about new rows; data.drop "
               "leaves it out",
               c->name);
    else if (c->step != 0 && c->use == LS_COLUMN_NUMBER && d->info->columns > 2)
        ls_log(d->host, LS_LOG_WARNING,
               "column \"%.60s\" goes %s evenly from row to row, as times and ids do, so it tells "
               "little about new rows; data.drop leaves it out",
               c->name, c->step > 0 ? "up" : "down");
    if (c->use != LS_COLUMN_LEVELS || c->named)
        return;
    /* where all texts are numbers, the column was taken for one of codes on purpose */
    if (c->levels > CLASS_VALUES / 2 && 2 * c->numeric >= c->levels && c->numeric < c->levels)
        ls_log(d->host, LS_LOG_WARNING,
               "column \"%.60s\": %d of its %d different texts are numbers, but it is taken for a "
               "column of texts, each of which becomes an input; correct the other texts or leave "
               "them empty (data.missing), or name the column in data.categorical or data.drop",
               c->name, c->numeric, c->levels);
    else if (present >= 20 && 2 * (uint32_t)c->levels > present)
        ls_log(d->host, LS_LOG_WARNING,
               "column \"%.60s\" has %d different texts in %u rows, so it tells little about new "
               "rows; data.drop leaves it out",
               c->name, c->levels, (unsigned)present);
}

/* ---- inputs --------------------------------------------------------------------------------- */

static bool is_scaled(const ls_gather *g)
{
    for (int i = 0; i < 4; i++)
        if (g->mean[i] != 0 || g->std[i] != 1)
            return true;
    return false;
}

/* Returns whether the first layer of the model scales its inputs. */
static bool begins_with_norm(const ls_config *c)
{
    const cJSON *layers = cJSON_GetObjectItemCaseSensitive(c->model, "layers");
    const char *type = cJSON_GetStringValue(
        cJSON_GetObjectItemCaseSensitive(cJSON_GetArrayItem(layers, 0), "type"));
    return type && (strcmp(type, "batch_norm") == 0 || strcmp(type, "layer_norm") == 0);
}

static void warn_of_size(const checked_data *d)
{
    double squares = 0;
    const ls_prep *p = d->info->prep;
    const bool table = p && p->kind == LS_PREP_TABLE;
    const size_t most = VALUES_EXAMINED / d->each + 1;
    const uint32_t rows = d->rows < most ? d->rows : (uint32_t)most;
    for (uint32_t i = 0; i < rows; i++)
        for (size_t k = 0; k < d->each; k++) {
            const double v = (double)d->view.values[row_at(d, i) * d->each + k];
            squares += v * v;
        }
    const double size = sqrt(squares / ((double)rows * (double)d->each));
    if (size > 30)
        ls_log(d->host, LS_LOG_WARNING,
               "the inputs are of the order of %.2g, and nothing scales them; %s", size,
               table ? "data.standardize does" : "data.mean and data.std do");
}

/* ---- targets -------------------------------------------------------------------------------- */

/* Returns whether the classes have numbers as names, or no names, so that they may be values. */
static bool are_numbers(const ls_dataset_info *info)
{
    double value;
    for (int k = 0; info->class_name && k < info->classes; k++)
        if (!ls_field_is_number(info->class_name[k], &value))
            return false;
    return true;
}

static void warn_of_classes(const checked_data *d)
{
    const int classes = d->info->classes;
    const uint32_t rows = d->info->rows;
    uint32_t *count =
        classes <= MOST_CLASSES ? ls_alloc_array(d->host, (size_t)classes, sizeof *count) : NULL;
    int absent = -1, absents = 0;
    for (uint32_t i = 0; count && i < rows; i++) {
        const int32_t label = d->view.labels[row_at(d, i)];
        if (label >= 0 && label < classes)
            count[label]++;
    }
    for (int k = 0; count && k < classes; k++)
        if (count[k] == 0) {
            absent = absents++ ? absent : k;
        }
    if (absents && d->c->data_keys.classes == 0 && d->info->prep)
        ls_log(d->host, LS_LOG_WARNING,
               "class %d%s no training row, so the model cannot learn %s%s", absent,
               absents > 1 ? " and others have" : " has", absents > 1 ? "them" : "it",
               2 * absents > classes && are_numbers(d->info)
                   ? "; if the targets are values, set data.labels to \"values\""
                   : "");
    if (classes > 50 && 3 * (uint32_t)classes > rows && are_numbers(d->info))
        ls_log(
            d->host, LS_LOG_WARNING,
            "the targets are taken for %d classes of %u rows; if they are values, set data.labels "
            "to \"values\"",
            classes, (unsigned)rows);
    ls_free(d->host, count);
}

/* Warns if the targets are whole numbers with at most CLASS_VALUES different values. Larger numbers
 * than 2^24 may have been rounded to whole ones. */
static void warn_of_values(const checked_data *d)
{
    float seen[CLASS_VALUES];
    int n = 0;
    for (uint32_t i = 0; i < d->info->rows; i++) {
        float v = (float)ls_prep_output(d->info->prep, 0, d->view.targets[row_at(d, i)]);
        v = fabsf(v - roundf(v)) < 1e-4f ? roundf(v) : v;
        if (v != roundf(v) || fabsf(v) >= 0x1p24f)
            return;
        int k = 0;
        while (k < n && seen[k] != v)
            k++;
        if (k == CLASS_VALUES)
            return;
        seen[k] = v;
        if (k == n)
            n++;
    }
    if (n == 1)
        ls_log(d->host, LS_LOG_WARNING,
               "the target of every training row is %g, so there is nothing to learn",
               (double)seen[0]);
    else if (d->info->rows >= 3 * CLASS_VALUES)
        ls_log(d->host, LS_LOG_WARNING,
               "the targets are %d different whole numbers, and are learnt as values; if they are "
               "classes, set data.labels to \"classes\"",
               n);
}

/* Warns if in each row one target is 1 and all others are 0. */
static void warn_of_one_hot(const checked_data *d)
{
    const size_t targets = (size_t)d->info->targets;
    for (uint32_t i = 0; i < d->info->rows; i++) {
        const float *t = d->view.targets + row_at(d, i) * targets;
        size_t ones = 0, zeros = 0;
        for (size_t k = 0; k < targets; k++) {
            if (t[k] == 1)
                ones++;
            else if (t[k] == 0)
                zeros++;
        }
        if (ones != 1 || ones + zeros != targets)
            return;
    }
    ls_log(d->host, LS_LOG_WARNING,
           "the targets are one-hot, and are learnt as %zu values; for classes set data.labels to "
           "\"classes\"",
           targets);
}

static void warn_of_weights(const checked_data *d)
{
    const ls_dataset_view *v = &d->view;
    if (v->weights && ls_sum_weights(v->weights, v->row, d->info->rows, 1) == 0)
        ls_log(d->host, LS_LOG_WARNING,
               "the weight of every training row is 0, so there is nothing to learn");
}

/* ---- the checks of a run -------------------------------------------------------------------- */

void ls_log_data_doubts(const ls_config *config, const ls_dataset *train, const ls_dataset *judged,
                        const ls_host *host)
{
    const ls_dataset_info *info = ls_dataset_describe(train);
    const checked_data d = {
        .c = config,
        .info = info,
        .view = ls_dataset_resident(train),
        .rows = info->rows < ROWS_EXAMINED ? info->rows : ROWS_EXAMINED,
        .each = (size_t)info->channels * (size_t)info->height * (size_t)info->width,
        .host = host,
    };
    if (config->eval_every > 0 && ls_dataset_rows(judged) == 0 && !info->synthetic)
        ls_log(host, LS_LOG_INFO,
               "data.validation: there are no test rows, and nothing is held out, so nothing is "
               "evaluated; 0.2 holds a fifth of the training rows out");
    if (!d.view.images || d.rows == 0 || info->synthetic)
        return;
    log_columns(&d);
    log_scaling(&d);
    warn_of_weights(&d);
    if (d.rows > 1 && ls_dataset_rows_are_equal(train))
        ls_log(host, LS_LOG_WARNING,
               "all training rows are equal, so there is nothing to learn from them");
    warn_of_offsets(&d);
    for (int i = 0; i < info->columns; i++)
        warn_of_column(&d, &info->column[i]);
    if (info->row_type == LS_ROW_F32 && !is_scaled(&config->preprocessing) &&
        !begins_with_norm(config))
        warn_of_size(&d);
    if (info->targets == 0)
        warn_of_classes(&d);
    else if (ls_loss_limits_targets(config->loss))
        return; /* targets of 0 and 1, or counts, are what the loss needs */
    else if (info->targets == 1 && info->prep)
        warn_of_values(&d);
    else if (info->targets > 1)
        warn_of_one_hot(&d);
}

/* ---- the result ----------------------------------------------------------------------------- */

/* The classes of the evaluated rows. In shares, a row counts as its weight. */
typedef struct shares {
    double most;     /* share of the most common class; 0: the rows have no classes */
    double entropy;  /* the loss of a model that predicts each class with its share */
    uint32_t others; /* number of rows of other classes than the most common one */
} shares;

static shares shares_of(const ls_dataset *judged, const ls_host *host)
{
    shares s = {0};
    int common = 0;
    const ls_dataset_info *info = ls_dataset_describe(judged);
    const ls_dataset_view view = ls_dataset_resident(judged);
    const int classes = info->classes;
    if (!view.images || info->targets || info->rows < 10 || classes < 2 || classes > MOST_CLASSES ||
        info->synthetic)
        return s;
    const double all = ls_sum_weights(view.weights, view.row, info->rows, 1);
    double *count = ls_alloc_array(host, (size_t)classes, sizeof *count);
    for (int k = 0; count && k < classes; k++)
        count[k] = 0;
    for (uint32_t i = 0; count && all > 0 && i < info->rows; i++) {
        const size_t row = view.row ? view.row[i] : i;
        if (view.labels[row] >= 0 && view.labels[row] < classes)
            count[view.labels[row]] += view.weights ? (double)view.weights[row] : 1;
    }
    for (int k = 0; count && all > 0 && k < classes; k++) {
        const double share = count[k] / all;
        common = share > s.most ? k : common;
        s.most = fmax(s.most, share);
        s.entropy -= share > 0 ? share * log(share) : 0;
    }
    ls_free(host, count);
    for (uint32_t i = 0; i < info->rows; i++)
        s.others += view.labels[view.row ? view.row[i] : i] != common;
    return s;
}

static bool has_class_weights(const ls_config *c)
{
    return c->class_weights && !cJSON_IsNull(c->class_weights);
}

/* Returns whether the loss has risen since its lowest value by more than the `part` of the loss of
 * a guess. */
static bool has_risen(const ls_last_result *r, double guess, double part)
{
    return r->least_epoch > 0 && r->least_epoch < r->epoch && guess > 0 &&
           r->loss - r->least_loss > part * guess;
}

/* Returns whether the loss has risen (has_risen) after it was lower than that of a guess. */
static bool is_overfitted(const ls_last_result *r, double guess, double part)
{
    return has_risen(r, guess, part) && r->least_loss < guess;
}

/* Returns whether the model knows its training rows only: their loss is far below that of a guess,
 * and the loss of the other rows never was below it. */
static bool memorises(const ls_last_result *r, double guess)
{
    return r->train_loss < 0.25 * guess && r->least_loss >= guess;
}

static bool inputs_are_scaled(const ls_config *c, const ls_dataset_info *info)
{
    bool scaled = is_scaled(&c->preprocessing) || info->row_type != LS_ROW_F32;
    const ls_prep *p = info->prep;
    for (int i = 0; p && i < p->columns; i++)
        scaled |= p->column[i].scaled;
    return scaled || c->data_keys.standardize;
}

/* Formats the likely cause of a result that is no better than a guess, and the cure. `guess`: the
 * loss of a guess. `classes`: the classes of the rows; NULL: values. */
static const char *cause_of(char out[320], const ls_config *c, const ls_dataset_info *info,
                            const ls_last_result *r, double guess, const shares *classes)
{
    if (is_overfitted(r, guess, 0.02))
        snprintf(out, 320,
                 "the loss was lowest after epoch %u (%.4g) and is %.4g now, so the model is "
                 "overfitted: fewer epochs, patience, or checkpoint.best, which keeps the best one",
                 (unsigned)r->least_epoch, r->least_loss, r->loss);
    else if (memorises(r, guess))
        snprintf(out, 320,
                 "the loss of the training rows is %.4g, but that of these rows was never below a "
                 "guess's (%.4g), so the model memorises: more rows, dropout or a smaller model, "
                 "or inputs that say more about the target",
                 r->train_loss, guess);
    else if (has_risen(r, guess, 0.02))
        snprintf(out, 320,
                 "the loss was lowest after epoch %u (%.4g) and is %.4g now, but was never below "
                 "that of a guess (%.4g): optimizer.lr is too large (the verb find-lr), or the "
                 "inputs say nothing about the target",
                 (unsigned)r->least_epoch, r->least_loss, r->loss, guess);
    else if (classes && 1 - classes->most < 0.25)
        snprintf(out, 320,
                 "only %u rows are of another class, so the accuracy tells little: see the "
                 "recall of each class (the verb eval); class_weights \"balanced\" raises that of "
                 "rare classes",
                 (unsigned)classes->others);
    else
        snprintf(out, 320, "try another optimizer.lr (the verb find-lr)%s%s",
                 r->least_epoch == r->epoch ? ", more epochs" : "",
                 inputs_are_scaled(c, info)
                     ? ""
                     : ", or scaled inputs (data.standardize, data.mean, data.std)");
    return out;
}

static bool warn_of_accuracy(const ls_config *c, const ls_dataset *judged, const ls_last_result *r,
                             const shares *s, const ls_host *host)
{
    char cause[320];
    const ls_dataset_info *info = ls_dataset_describe(judged);
    if (s->most == 0 || s->most == 1 || !(r->accuracy <= s->most) || has_class_weights(c))
        return false;
    ls_log(host, LS_LOG_WARNING,
           "an accuracy of %.4f is no better than always answering the most common class of the %u "
           "%s rows (%.4f): %s",
           r->accuracy, (unsigned)info->rows, info->split, s->most,
           cause_of(cause, c, info, r, s->entropy, s));
    return true;
}

static bool warn_of_r2(const ls_config *c, const ls_dataset *judged, const ls_last_result *r,
                       double guess, const ls_host *host)
{
    char cause[320];
    const ls_dataset_info *info = ls_dataset_describe(judged);
    if (!(r->r2 <= 0) || info->rows < 10 || info->synthetic)
        return false;
    ls_log(host, LS_LOG_WARNING,
           "an r2 of %.4g is no better than always answering the mean of the %u %s rows (0): %s",
           r->r2, (unsigned)info->rows, info->split, cause_of(cause, c, info, r, guess, NULL));
    return true;
}

static bool warn_of_auc(const ls_config *c, const ls_dataset *judged, const ls_last_result *r,
                        const ls_host *host)
{
    char cause[320];
    const ls_dataset_info *info = ls_dataset_describe(judged);
    if (!(r->auc <= 0.5) || info->rows < 10 || info->synthetic)
        return false;
    ls_log(host, LS_LOG_WARNING,
           "an auc of %.4g on the %u %s rows is no better than guessing (0.5): %s", r->auc,
           (unsigned)info->rows, info->split, cause_of(cause, c, info, r, log(2), NULL));
    return true;
}

void ls_log_result_doubts(const ls_config *c, const ls_dataset *judged, const ls_last_result *r,
                          const ls_host *host)
{
    const ls_dataset_info *info = ls_dataset_describe(judged);
    const shares s = shares_of(judged, host);
    /* The loss of a guess. For values it is their variance: r2 is 1 − loss / variance. */
    const double guess = s.most > 0 ? s.entropy : r->r2 < 1 ? r->loss / (1 - r->r2) : 0;
    const bool keeps = c->checkpoint.best || c->patience > 0;
    if (warn_of_accuracy(c, judged, r, &s, host) || warn_of_r2(c, judged, r, guess, host) ||
        warn_of_auc(c, judged, r, host))
        return;
    if (is_overfitted(r, guess, 0.1) && !keeps && info->rows >= 10 && !info->synthetic)
        ls_log(host, LS_LOG_WARNING,
               "the loss on the %s rows was lowest after epoch %u (%.4g) and is %.4g now, so the "
               "model is overfitted: fewer epochs, patience, or checkpoint.best, which keeps the "
               "best one",
               info->split, (unsigned)r->least_epoch, r->least_loss, r->loss);
}
