/* Datasets that lie in memory as a whole. */
#ifndef DATA_RESIDENT_H
#define DATA_RESIDENT_H

#include "data/dataset.h"

typedef struct ls_resident {
    ls_dataset base;
    const ls_host *host;
    char *source;    /* what base.info.source points to */
    uint8_t *images; /* [rows][channels][height][width] */
    uint8_t *labels; /* [rows] */
} ls_resident;

/* Memory for a dataset as `info` describes it, zeroed; `info->source` is copied, the other texts
 * must be static. Filled by the caller, closed with ls_dataset_close. Errors: LS_ENOMEM. */
int ls_resident_create(ls_resident **out, const ls_dataset_info *info, const ls_host *host,
                       ls_error *err);

#endif
