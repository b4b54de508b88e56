/* SPDX-License-Identifier: MIT */
/* A file to which whole records are appended, such as the lines of metrics.jsonl or the events of
 * TensorBoard.
 *
 *     ls_log_file *f;
 *     int status = ls_log_file_open(&f, "x/metrics.jsonl", LS_LOG_FILE_NEW, &kind, host, &err);
 *     if (status == LS_OK)
 *         status = ls_log_file_put(f, record, length, &err);      // as often as needed
 *     …   ls_log_file_flush(f, &bytes, &err), ls_log_file_sync(f, &err)
 *     status = ls_log_file_close(f, &err);                        // all records are on the disk
 *
 * Records are collected in a buffer in memory, so most records need no system call and no
 * allocation. About once a second the buffer is *flushed*, that is, written to the file. A partial
 * record is cut off after a failed write, so that every record of the file is complete. After a
 * failure nothing more is written, so that the file has no gap of lost records.
 *
 * Every write appends to the end that the file has at that time. Another program may make the file
 * shorter, as logrotate does with copytruncate; the log then has a warning, and the file goes on
 * with the next record.
 *
 * After a loss of power the file contains everything that was flushed before the last sync (fsync).
 * Any part of the bytes that were written after that sync can be lost. If later bytes are on the
 * disk and earlier bytes are lost, the lost bytes read as zeros.
 * Threads: only one thread at a time may use a file, but another thread may call ls_log_file_sync
 * at the same time. */
#ifndef STORE_LOG_FILE_H
#define STORE_LOG_FILE_H

#include <lockstep/host.h>
#include <lockstep/status.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef struct ls_log_file ls_log_file;

/* Description of the records of a file. */
typedef struct ls_log_kind {
    bool lines;         /* records are texts; a newline is written after each of them */
    const char *what;   /* name of the records in messages: "metrics" */
    const char *advice; /* advice to the user if the records cannot be written */
} ls_log_kind;

/* Value of `keep` in ls_log_file_open for a new file. */
#define LS_LOG_FILE_NEW UINT64_MAX

/* Opens a file for appending. If `keep` is LS_LOG_FILE_NEW, the file must not exist, and is
 * created. Otherwise the file must exist and have at least `keep` bytes, and is cut to its first
 * `keep` bytes. A symbolic link is not followed. When the function returns, the file's name and its
 * length survive a loss of power. `kind` belongs to the caller and must outlive the file. The
 * caller closes *out. Errors: LS_EIO; LS_EAGAIN (a file to be created exists already); LS_EDATA
 * (the file has fewer than `keep` bytes); LS_ENOMEM. */
int ls_log_file_open(ls_log_file **out, const char *path, uint64_t keep, const ls_log_kind *kind,
                     const ls_host *host, ls_error *err);

/* Appends a record. Errors: LS_EIO; after that every call returns the same error. */
int ls_log_file_put(ls_log_file *f, const void *record, size_t count, ls_error *err);

/* Flushes the buffer if the last write to the file was more than a second ago. A thread that
 * appends no records for a long time should call this function from time to time, so that earlier
 * records get into the file. A failure is reported by the next call of another function. */
void ls_log_file_flush_if_due(ls_log_file *f);

/* Flushes the buffer. *bytes becomes the file's length. Errors: LS_EIO. */
int ls_log_file_flush(ls_log_file *f, uint64_t *bytes, ls_error *err);

/* Returns whether another program has made the file shorter since the last call. This is noticed
 * when the buffer is written. */
bool ls_log_file_was_cut(ls_log_file *f);

/* Returns the file's descriptor, with which the caller may read the file (pread). */
int ls_log_file_descriptor(const ls_log_file *f);

/* Syncs the file: waits until all flushed records are on the disk. Any thread. Errors: LS_EIO. */
int ls_log_file_sync(const ls_log_file *f, ls_error *err);

/* Flushes, syncs, closes and frees the file; the file is closed and freed even if the function
 * fails. Errors: LS_EIO. */
int ls_log_file_close(ls_log_file *f, ls_error *err);

#endif
