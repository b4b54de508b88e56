/* What a run says of its data at its start, and what looks wrong, once, with the key that changes it. */
#ifndef TRAIN_DOUBTS_H
#define TRAIN_DOUBTS_H

#include "config/config.h"
#include "data/dataset.h"

/* Logs the columns of a table, and what was assumed of the targets (LS_LOG_INFO), and as warnings what looks wrong in
 * the training rows: a class without rows, columns that count the rows or name each of them, numbers that became levels,
 * large inputs that nothing scales, targets that look like something else. Reads the rows
 * once. `judged`: the rows that are evaluated. */
void ls_say_of_data(const ls_config *config, const ls_dataset *train, const ls_dataset *judged,
                    const ls_host *host);

/* Behind the last evaluation: warns where an accuracy is that of the commonest class of the rows that it was measured on,
 * or less. */
void ls_say_of_accuracy(const ls_dataset *judged, double accuracy, const ls_host *host);

#endif
