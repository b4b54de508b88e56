/* SPDX-License-Identifier: MIT */
/* The state of a run's file of records when the run is resumed. A checkpoint contains a *mark*:
 * the length that the file had when the checkpoint was written, and checksums of its lines. */
#ifndef RECORDS_KEPT_H
#define RECORDS_KEPT_H

#include "records/sink.h"

/* Changes to a file of records since the mark. */
typedef enum ls_kept {
    LS_KEPT_WHOLE, /* the file begins with the run's first record, and nobody has made it shorter */
    LS_KEPT_END,   /* the file had been cut before the mark, and has not been cut since */
    LS_KEPT_NO_FILE, /* the file is not there: another program has moved or removed it */
    LS_KEPT_EMPTY,   /* another program has put an empty file in its place, or has emptied it */
    LS_KEPT_CUT      /* another program has cut the file since the mark; later records are in it */
} ls_kept;

/* Finds out what has happened to the file. A file in which only bytes were changed counts as
 * LS_KEPT_WHOLE; ls_kept_check names the changed line. */
ls_kept ls_kept_look(const char *path, const ls_sink_mark *keep, const ls_host *host);

/* Checks that the file is unchanged up to the mark. Succeeds if the file is shorter. Errors:
 * LS_EDATA (the message names the line), LS_ENOENT, LS_EIO. */
int ls_kept_check(const char *path, const ls_sink_mark *keep, const ls_host *host, ls_error *err);

/* Sets *out to the end of the run that the records after the mark tell: that of the last record, if
 * it is a run_end, or the `ended` of a resume right after the mark (of a resumed run that was
 * killed before its next checkpoint). out->status is "" if they tell none. */
void ls_kept_end(ls_former_end *out, const char *path, const ls_sink_mark *keep,
                 const ls_host *host);

/* Adds the checksums of the lines in the first `bytes` bytes of the open file. Bytes after the last
 * newline count as a line. Returns an error number, 0 on success. */
int ls_kept_sum(ls_line_sums *sums, int fd, uint64_t bytes);

#endif
