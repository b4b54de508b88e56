/* Log messages about the data of a run. At the start of the run: a description of the columns, and
 * warnings about data that look like a mistake. At the end of the run: a warning if the model has
 * learnt nothing. Each warning names the config key that avoids the mistake. */
#ifndef TRAIN_DOUBTS_H
#define TRAIN_DOUBTS_H

#include "config/config.h"
#include "data/dataset.h"

/* Logs the columns of a table, and how inputs and targets are scaled, with LS_LOG_INFO. Logs
 * warnings about the training rows, if there are any of these:
 *
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

/* Called after the last evaluation. Warns if the accuracy is not higher than the accuracy of a
 * model that always answers the most common class of the evaluated rows. */
void ls_warn_of_accuracy(const ls_dataset *judged, double accuracy, const ls_host *host);

#endif
