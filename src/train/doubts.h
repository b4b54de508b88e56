/* Log messages about the data of a run, at its start: a description, and warnings about what looks
 * wrong, each once and with the config key that changes it. */
#ifndef TRAIN_DOUBTS_H
#define TRAIN_DOUBTS_H

#include "config/config.h"
#include "data/dataset.h"

/* Logs, with LS_LOG_INFO, the columns of a table and what was assumed about the targets. Logs as
 * warnings what looks wrong in the training rows: a class without rows, columns that count the rows
 * or name each of them, numbers that became levels, large inputs that nothing scales, targets that
 * look like another kind. Reads the rows once. `judged`: the rows that are evaluated. */
void ls_say_of_data(const ls_config *config, const ls_dataset *train, const ls_dataset *judged,
                    const ls_host *host);

/* Called after the last evaluation: warns if the accuracy is not above that of always answering the
 * most common class of the evaluated rows. */
void ls_say_of_accuracy(const ls_dataset *judged, double accuracy, const ls_host *host);

#endif
