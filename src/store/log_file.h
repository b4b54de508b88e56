/* A file that grows by whole records: metrics, events.
 *
 *     ls_log_file *f;
 *     int status = ls_log_file_open(&f, "runs/x/metrics.jsonl", LS_LOG_FILE_NEW, &kind, host, &err);
 *     if (status == LS_OK)
 *         status = ls_log_file_put(f, record, length, &err);      // as often as needed
 *     …   ls_log_file_flush(f, &bytes, &err), ls_log_file_sync(f, &err)
 *     status = ls_log_file_close(f, &err);                        // the records last now, the last one too
 *
 * Records are gathered in memory, so that one costs no system call and no allocation, and are written
 * out once a second. What a write that failed has cut in two is taken away again, so that every record
 * of the file is whole; behind it nothing is written even if there is room again: what was lost would
 * be a gap, and a file that is cut short is an honest one.
 *
 * A loss of power keeps what was flushed before the last sync. Of what stood behind it any part may
 * be missing, and reads as zeros where something behind it was kept. A file belongs to one thread at a
 * time; only ls_log_file_sync may be called by another one meanwhile. */
#ifndef STORE_LOG_FILE_H
#define STORE_LOG_FILE_H

#include <lockstep/host.h>
#include <lockstep/status.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef struct ls_log_file ls_log_file;

typedef struct ls_log_kind {
    bool lines;       /* records are texts, and each becomes a line */
    const char *what; /* "metrics", for messages */
    const char *fix;  /* what to do when they cannot be written */
} ls_log_kind;

#define LS_LOG_FILE_NEW UINT64_MAX

/* `keep` is LS_LOG_FILE_NEW for a file that must not exist yet; else the file exists, and is cut to its
 * first `keep` bytes, which it must have. A symbolic link is not followed. The name lasts from then on, and
 * so does the cut. `kind` stays the caller's, and must live as long as the file.
 * Errors: LS_EIO; LS_EAGAIN when a new file's name is taken; LS_EDATA for a file that is shorter;
 * LS_ENOMEM. */
int ls_log_file_open(ls_log_file **out, const char *path, uint64_t keep, const ls_log_kind *kind,
                     const ls_host *host, ls_error *err);

/* Appends a record. Errors: LS_EIO, and the same one again from then on. */
int ls_log_file_put(ls_log_file *f, const void *record, size_t count, ls_error *err);

/* Called now and then by a thread that waits: writes records buffered for a second. An error is returned by the next
 * call. */
void ls_log_file_look(ls_log_file *f);

/* Hands what was gathered to the system; *bytes is the file's length then. Errors: LS_EIO. */
int ls_log_file_flush(ls_log_file *f, uint64_t *bytes, ls_error *err);

/* Makes what was flushed last. Any thread. Errors: LS_EIO. */
int ls_log_file_sync(const ls_log_file *f, ls_error *err);

/* Flushes, syncs, closes, and frees in any case. Errors: LS_EIO. */
int ls_log_file_close(ls_log_file *f, ls_error *err);

#endif
