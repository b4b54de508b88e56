/* Sinks: destinations of metrics records. A run has any number of them, up to LS_SINKS_MAX. */
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
    /* Receives one record. A status other than LS_OK ends the run. */
    int (*emit)(ls_sink *sink, const ls_record *record, ls_error *err);
    /* Makes all records durable, frees the sink, and returns the first error. NULL: the caller owns
     * the sink. */
    int (*close)(ls_sink *sink, ls_error *err);
    ls_log_file *file; /* file to which the sink writes, or NULL */
    bool wants_text;   /* emit gets records with `json` */
};

/* A position in a file of records, with checksums of the records before it. */
typedef struct ls_sink_mark {
    uint64_t bytes;
    ls_line_sums sums; /* checksums of the records before it */
} ls_sink_mark;

#define LS_SINKS_MAX 8

/* The sinks of a run, and the writer that renders records for sinks that want text. */
typedef struct ls_sinks {
    int count;
    ls_sink *sink[LS_SINKS_MAX];
    bool failed[LS_SINKS_MAX]; /* the sink has failed and gets no further record */
    ls_sink *metrics;          /* the sink that writes metrics.jsonl, or NULL */
    ls_json_writer writer;
} ls_sinks;

/* Initialises an empty list of sinks. */
void ls_sinks_init(ls_sinks *sinks, const ls_host *host);

/* Adds a sink and takes ownership of it; if that fails the sink is closed. Errors: LS_EINVAL (too
 * many). */
int ls_sinks_add(ls_sinks *sinks, ls_sink *sink, ls_error *err);

/* Passes a record to every sink that has not failed, even if one of them fails now; renders it once
 * if a sink wants text. Returns the first error. Errors: LS_ENOMEM, those of the sinks. */
int ls_sinks_emit(ls_sinks *sinks, ls_record *record, ls_error *err);

/* Writes records that files have buffered for a second. Called while the coordinator waits. */
void ls_sinks_look(ls_sinks *sinks);

/* ls_sinks_flush passes the buffered records to the system and sets *mark to the end of
 * metrics.jsonl, or to zero without that file; the coordinator calls it before a checkpoint is
 * written. ls_sinks_sync then makes the records durable; any thread may call it. Both return the
 * first error. */
int ls_sinks_flush(ls_sinks *sinks, ls_sink_mark *mark, ls_error *err);
int ls_sinks_sync(const ls_sinks *sinks, ls_error *err);

/* Closes all sinks and returns the first error. A zeroed structure is allowed. */
int ls_sinks_close(ls_sinks *sinks, ls_error *err);

/* Creates a sink that appends records to a file as JSON Lines, written at least once a second.
 * `keep` NULL: the file must not exist yet. Otherwise the file exists, must be unchanged up to this
 * mark, and is cut there. Errors: LS_EIO; LS_EDATA (the file is shorter or has changed; the message
 * names the line); LS_ENOMEM. */
int ls_sink_jsonl(ls_sink **out, const char *path, const ls_sink_mark *keep, const ls_host *host,
                  ls_error *err);

/* Creates a sink in the run's directory `dir`; sinks.def has one row for each. `tensorboard` is a
 * new event file with loss, accuracy, learning rate and images per second of every step, and loss
 * and accuracy of every evaluation, written at least once a second. Errors: LS_EIO, LS_ENOMEM. */
typedef int ls_sink_opener(ls_sink **out, const char *dir, const ls_host *host, ls_error *err);

#define LS_SINK(name, wanted) ls_sink_opener ls_sink_##name;
#include "records/sinks.def"
#undef LS_SINK

/* Open the sinks in a run's directory: metrics.jsonl, with `keep` as for ls_sink_jsonl; and the
 * sinks of sinks.def that the config asks for. Errors: those of the sinks and of ls_sinks_add. */
int ls_sinks_open_metrics(ls_sinks *sinks, const char *dir, const ls_sink_mark *keep,
                          const ls_host *host, ls_error *err);
int ls_sinks_open_wanted(ls_sinks *sinks, const char *dir, const ls_config *config,
                         const ls_host *host, ls_error *err);

/* Creates a sink that calls `record` (ls_trainer_callbacks.record). Errors: LS_ENOMEM. */
int ls_sink_callback(ls_sink **out,
                     int (*record)(void *user, const char *json, size_t length, ls_error *err),
                     void *user, const ls_host *host, ls_error *err);

#endif
