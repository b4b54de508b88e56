/* SPDX-License-Identifier: MIT */
/* *Sinks*: destinations of a run's records (the events of the run, record.h), such as a file or a
 * callback. A run has at most LS_SINKS_MAX sinks. */
#ifndef RECORDS_SINK_H
#define RECORDS_SINK_H

#include "hash/hash.h"
#include "records/record.h"
#include "store/log_file.h"

#include <lockstep/host.h>
#include <lockstep/status.h>
#include <stdbool.h>

typedef struct ls_sink ls_sink;

struct ls_sink {
    /* Receives one record. If it returns an error, the run ends. */
    int (*emit)(ls_sink *sink, const ls_record *record, ls_error *err);
    /* Makes all records durable, frees the sink, and returns the first error. NULL: the owner of
     * the sink frees it itself. */
    int (*close)(ls_sink *sink, ls_error *err);
    ls_log_file *file; /* file to which the sink writes, or NULL */
    bool wants_text;   /* true: the sink wants text; record->json is set before `emit` is called */
};

/* A position in a file of records, and the checksums of the records before the position. */
typedef struct ls_sink_mark {
    uint64_t bytes;    /* offset of the position in the file */
    ls_line_sums sums; /* checksums of the records before the position */
} ls_sink_mark;

#define LS_SINKS_MAX 8

/* The sinks of a run, and the writer that renders records for sinks that want text. */
typedef struct ls_sinks {
    int count;
    ls_sink *sink[LS_SINKS_MAX];
    bool failed[LS_SINKS_MAX]; /* true: the sink has failed and gets no further record */
    ls_sink *metrics;          /* the sink that writes metrics.jsonl, or NULL */
    /* resumed runs: number of records before the checkpoint that metrics.jsonl lacks because
     * another program has moved or cut the file; the record of the resume reports it */
    int missing;
    bool lacks_start; /* resumed runs: metrics.jsonl does not begin with the run's first record */
    /* resumed runs: the end that was cut off from metrics.jsonl; the record of the resume keeps it
     */
    ls_former_end ended;
    ls_json_writer writer;
} ls_sinks;

/* Initialises an empty list of sinks. */
void ls_sinks_init(ls_sinks *sinks, const ls_host *host);

/* Adds a sink, which then belongs to `sinks`. If the sink cannot be added, it is closed. Errors:
 * LS_EINVAL (there are LS_SINKS_MAX sinks already). */
int ls_sinks_add(ls_sinks *sinks, ls_sink *sink, ls_error *err);

/* Passes a record to every sink that has not failed before. If a sink fails in this call, the other
 * sinks still get the record. The record is rendered as JSON once, if any sink wants text. Returns
 * the first error. Errors: LS_ENOMEM, those of the sinks. */
int ls_sinks_emit(ls_sinks *sinks, ls_record *record, ls_error *err);

/* Writes the buffered records of each sink to the sink's file, if the last write to the file was
 * more than a second ago. The coordinator calls this function while it waits. */
void ls_sinks_look(ls_sinks *sinks);

/* Writes the buffered records to the files, and sets *mark to the end of metrics.jsonl, or to zero
 * if there is no such file. The coordinator calls it before a checkpoint is written. Returns the
 * first error. */
int ls_sinks_flush(ls_sinks *sinks, ls_sink_mark *mark, ls_error *err);
/* Makes the written records durable. Called after ls_sinks_flush, by any thread. Returns the first
 * error. */
int ls_sinks_sync(const ls_sinks *sinks, ls_error *err);

/* Closes all sinks and returns the first error. A zeroed structure is allowed. */
int ls_sinks_close(ls_sinks *sinks, ls_error *err);

/* Creates a sink that appends records to a file as JSON Lines. Records are buffered for at most a
 * second. If `keep` is NULL, the file must not exist yet; else it must be unchanged up to the
 * position `keep`, and is cut there. Errors: LS_EIO; LS_EDATA (the file is shorter or has changed;
 * the message names the line); LS_ENOMEM. */
int ls_sink_jsonl(ls_sink **out, const char *path, const ls_sink_mark *keep, const ls_host *host,
                  ls_error *err);

/* The type of functions that create a sink in the run's directory `dir`, one for each line of
 * sinks.def. Errors: LS_EIO, LS_ENOMEM.
 *
 * ls_sink_tensorboard creates a sink that writes a new TensorBoard event file: loss, accuracy,
 * learning rate and images per second of every step, and loss and accuracy of every evaluation.
 * Events are buffered for at most a second. */
typedef int ls_sink_opener(ls_sink **out, const char *dir, const ls_host *host, ls_error *err);

#define LS_SINK(name, wanted) ls_sink_opener ls_sink_##name;
#include "records/sinks.def"
#undef LS_SINK

/* Opens the sink that writes metrics.jsonl in the run's directory. `keep`: as for ls_sink_jsonl,
 * with one difference: if another program has moved or cut the file since (kept.h), a new file
 * begins, a cut file is renamed to metrics.jsonl.cut, sinks->missing and sinks->lacks_start are
 * set, and the log has a warning. sinks->ended is set from the records that are cut off. Errors:
 * those of ls_sink_jsonl and of ls_sinks_add. */
int ls_sinks_open_metrics(ls_sinks *sinks, const char *dir, const ls_sink_mark *keep,
                          const ls_host *host, ls_error *err);
/* Opens the sinks of sinks.def that the config asks for. Errors: those of the sinks and of
 * ls_sinks_add. */
int ls_sinks_open_wanted(ls_sinks *sinks, const char *dir, const ls_config *config,
                         const ls_host *host, ls_error *err);

/* Creates a sink that calls the function `record` of ls_trainer_callbacks. Errors: LS_ENOMEM. */
int ls_sink_callback(ls_sink **out,
                     int (*record)(void *user, const char *json, size_t length, ls_error *err),
                     void *user, const ls_host *host, ls_error *err);

#endif
