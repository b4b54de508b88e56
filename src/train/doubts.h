/* SPDX-License-Identifier: MIT */
/* Log messages about the data of a run. At the start of the run: a description of the columns, and
 * warnings about data that look like a mistake. At the end of the run: a warning if the model is
 * no better than a guess, or overfitted. Each warning names the key that avoids the mistake. */
#ifndef TRAIN_DOUBTS_H
#define TRAIN_DOUBTS_H

#include "config/config.h"
#include "data/dataset.h"

/* Logs the columns of a table, and how inputs and targets are scaled, with LS_LOG_INFO. Logs
 * warnings about the training rows, if there are any of these:
 *
 * - all rows are equal
 * - a class without rows
 * - a column that only numbers the rows, or has a different text in nearly every row
 * - a column of numbers that is read as texts because a few of its values are texts
 * - large inputs that are not scaled
 * - targets that look like classes but are learnt as values, or look like values but are learnt as
 *   classes
 * - several targets of which always one is 1 and the others are 0
 *
 * `judged`: the rows that are evaluated. */
void ls_log_data_doubts(const ls_config *config, const ls_dataset *train, const ls_dataset *judged,
                        const ls_host *host);

/* The last evaluation of a run. Metrics that were not measured are NaN. */
typedef struct ls_last_result {
    double loss, accuracy, r2, auc;
    double least_loss;           /* the lowest loss of all evaluations of the run */
    double train_loss;           /* mean loss of the training rows in the last epoch */
    uint32_t epoch, least_epoch; /* epochs of the last evaluation and of the lowest loss, from 1 */
} ls_last_result;

/* Called after the last evaluation. Warns
 *
 * - if the accuracy, R² or AUC is no better than that of a guess, with the likely cause: a loss
 * that rose, a model that knows its training rows only, few rows of the other classes, or a model
 * that has learnt nothing. With class weights
 * an accuracy below that of the most common class is wanted, and causes no warning.
 * - if the loss has risen much since its lowest value (overfitting), and no key keeps the best
 *   evaluation. */
void ls_log_result_doubts(const ls_config *config, const ls_dataset *judged,
                          const ls_last_result *last, const ls_host *host);

#endif
