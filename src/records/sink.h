/* Where metrics records go: any number of sinks. */
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
    /* One record. A negative status ends the run. */
    int (*emit)(ls_sink *sink, const ls_record *record, ls_error *err);
    /* Makes all records last and frees the sink; reports what could not be written. NULL: the caller's own. */
    int (*close)(ls_sink *sink, ls_error *err);
    ls_log_file *file; /* the file that the records go to, or NULL */
    bool wants_text;   /* the record has its text, too */
};

/* A position in a file of records, and what stands before it. */
typedef struct ls_sink_mark {
    uint64_t bytes;
    ls_line_sums sums; /* of the records */
} ls_sink_mark;

#define LS_SINKS_MAX 8

/* The sinks of a run, and the writer that renders records for those that want text. */
typedef struct ls_sinks {
    int count;
    ls_sink *sink[LS_SINKS_MAX];
    bool failed[LS_SINKS_MAX]; /* it failed, and gets no further record */
    ls_sink *metrics;          /* the one of them that writes metrics.jsonl, or NULL */
    ls_json_writer writer;
} ls_sinks;

void ls_sinks_init(ls_sinks *sinks, const ls_host *host);

/* Takes ownership of `sink`; on failure it is closed. Errors: LS_EINVAL (too many). */
int ls_sinks_add(ls_sinks *sinks, ls_sink *sink, ls_error *err);

/* Renders the record if a sink wants text, once, and hands it to every sink that has not failed yet, also
 * when one fails now; returns the first error. Errors: LS_ENOMEM, and the sinks'. */
int ls_sinks_emit(ls_sinks *sinks, ls_record *record, ls_error *err);

/* While the coordinator waits: records that have been gathered for a second are written. */
void ls_sinks_look(ls_sinks *sinks);

/* Before a checkpoint counts on the records: the coordinator hands those that are gathered to the system, *mark being
 * the end of metrics.jsonl then, and any thread makes them last. Without that file the mark is zeroed. Returns the first
 * error. */
int ls_sinks_flush(ls_sinks *sinks, ls_sink_mark *mark, ls_error *err);
int ls_sinks_sync(const ls_sinks *sinks, ls_error *err);

/* Closes all; returns the first error. A zeroed structure is allowed. */
int ls_sinks_close(ls_sinks *sinks, ls_error *err);

/* JSON Lines: one record a line, appended to a file, written out at least once a second. `keep` is NULL
 * for a file that must not exist yet; else the file exists, and is cut at this mark, up to which it
 * must be as it was. Errors: LS_EIO; LS_EDATA (a file that is shorter, or has changed, naming the line);
 * LS_ENOMEM. */
int ls_sink_jsonl(ls_sink **out, const char *path, const ls_sink_mark *keep, const ls_host *host,
                  ls_error *err);

/* Sinks in a run's directory `dir`, by rows. `tensorboard` is a new event file: loss, accuracy, learning rate and
 * rate of every step, loss and accuracy of every evaluation; written out at least once a second. Errors: LS_EIO,
 * LS_ENOMEM. */
typedef int ls_sink_opener(ls_sink **out, const char *dir, const ls_host *host, ls_error *err);

#define LS_SINK(name, wanted) ls_sink_opener ls_sink_##name;
#include "records/sinks.def"
#undef LS_SINK

/* The sinks in the directory of a run: metrics.jsonl, `keep` as for ls_sink_jsonl; and those of sinks.def that the
 * config asks for. Errors: theirs, and those of ls_sinks_add. */
int ls_sinks_open_metrics(ls_sinks *sinks, const char *dir, const ls_sink_mark *keep,
                          const ls_host *host, ls_error *err);
int ls_sinks_open_wanted(ls_sinks *sinks, const char *dir, const ls_config *config,
                         const ls_host *host, ls_error *err);

/* Calls `record` (ls_trainer_callbacks.record). */
int ls_sink_callback(ls_sink **out,
                     int (*record)(void *user, const char *json, size_t length, ls_error *err),
                     void *user, const ls_host *host, ls_error *err);

#endif
