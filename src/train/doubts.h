/* Log messages about the data of a run: at its start a description of the columns, and warnings
 * about what looks like a mistake; at its end a warning if nothing was learnt. Each warning names
 * the config key that changes what it warns about. */
#ifndef TRAIN_DOUBTS_H
#define TRAIN_DOUBTS_H

#include "config/config.h"
#include "data/dataset.h"

/* Logs, with LS_LOG_INFO, the columns of a table and what was assumed about the targets. Logs
 * warnings about the training rows: a class without rows; a column that only numbers the rows, or
 * has another text in nearly every row; a column of numbers with some texts, whose values therefore
 * became categories; large inputs that are not scaled; targets that look like classes but are
 * learnt as values, or the reverse. Reads the rows once. `judged`: the rows that are evaluated. */
void ls_say_of_data(const ls_config *config, const ls_dataset *train, const ls_dataset *judged,
                    const ls_host *host);

/* Called after the last evaluation: warns if the accuracy is not above that of always answering the
 * most common class of the evaluated rows. */
void ls_warn_of_accuracy(const ls_dataset *judged, double accuracy, const ls_host *host);

#endif
