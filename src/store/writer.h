/* The inside of a file writer, for the files of this room. */
#ifndef STORE_WRITER_H
#define STORE_WRITER_H

#include "store/durable.h"

/* As ls_file_writer_open, but creates the last part of `path` in the directory `folder`, which the
 * caller keeps open; the path is for messages then. */
int ls_file_writer_open_at(ls_file_writer *w, int folder, const char *path, const ls_host *host,
                           ls_error *err);

/* The two halves of finish. Settling syncs and closes; a failure abandons the writer. */
int ls_file_writer_settle(ls_file_writer *w, char sha256[LS_SHA256_HEX], ls_error *err);
void ls_file_writer_release(ls_file_writer *w);

/* A writer of nothing yet. */
void ls_file_writer_start(ls_file_writer *w, const ls_host *host);

#endif
