/* A caller's data source as a dataset. */
#ifndef DATA_SOURCE_H
#define DATA_SOURCE_H

#include "data/dataset.h"

#include <lockstep/data_source.h>

/* As ls_dataset_open, for `source`, which outlives both. Rows that are not streamed are read, and
 * their labels checked, before it returns. Errors: LS_EINVAL (a source that is not filled in as its
 * header says), LS_EDATA (a label that is no class), LS_ECONFIG (limit beyond the data), LS_ENOMEM, or
 * the callback's. */
int ls_source_open(ls_dataset **train, ls_dataset **test, const ls_data_source *source,
                   const ls_dataset_spec *spec, const ls_host *host, ls_error *err);

#endif
