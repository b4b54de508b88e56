/* Finding a dataset's files. */
#ifndef DATA_LOCATE_H
#define DATA_LOCATE_H

#include "data/kinds.h"

/* The paths, in the order of the set's names. */
typedef struct ls_located {
    char *directory;
    char *file[LS_FILES_MAX];
} ls_located;

/* Looks for the files, plain or with ".gz", in spec->path alone when it is given, else below the
 * search directories. The first directory with the set's first file decides. Free the result with
 * ls_located_free, also after a failure. Errors: LS_ENOENT, LS_ECONFIG (the path is a file),
 * LS_ENOMEM. */
int ls_locate(ls_located *out, const ls_file_set *files, const char *dataset,
              const ls_dataset_spec *spec, const ls_host *host, ls_error *err);

void ls_located_free(ls_located *located, const ls_host *host);

#endif
