/* SPDX-License-Identifier: MIT */
/* Compares runs: the keys in which their configs differ, their final figures, and a page that draws
 * their curves in the same charts.
 *
 *     ls_comparison c;
 *     int status = ls_comparison_open(&c, run_dirs, 3, host, &err);
 *     …c.row[i].value[k] is the text of run k…
 *     if (status == LS_OK)
 *         status = ls_comparison_page(&page, &c, &err);
 *     ls_comparison_close(&c); */
#ifndef PAGE_COMPARE_H
#define PAGE_COMPARE_H

#include "page/facts.h"

/* LS_COMPARED: largest number of runs. LS_COMPARED_STEPS: largest number of step records of a run
 * on the page. LS_SENTENCE: size of the text of a verdict, a doubt and an objection. */
enum { LS_COMPARED = 8, LS_COMPARED_STEPS = 4096, LS_SENTENCE = LS_DOUBT + 40 };

/* Kind of a row: a figure of the runs; a key in which their configs differ; something else with
 * which they were trained, and in which they differ, such as the contents of the data. */
typedef enum ls_compared_kind {
    LS_COMPARED_FIGURE,
    LS_COMPARED_CONFIG,
    LS_COMPARED_GIVEN
} ls_compared_kind;

/* A row of a table, with the values of all runs. */
typedef struct ls_compared_row {
    ls_compared_kind kind;
    char *name;               /* "optimizer.lr" or "accuracy" */
    char *value[LS_COMPARED]; /* one text for each run; "": the run has no value */
} ls_compared_row;

typedef struct ls_comparison {
    const ls_host *host;
    int count;
    char *run_dir[LS_COMPARED];
    ls_run_log log[LS_COMPARED];
    ls_run_facts facts[LS_COMPARED];
    ls_json *start[LS_COMPARED]; /* first record of each run */
    ls_compared_row *row;        /* in the order of their kinds */
    size_t rows, capacity;
} ls_comparison;

/* Reads the records and weights of 1 to LS_COMPARED runs and compares them. The caller calls
 * ls_comparison_close even after a failure. Errors: those of ls_report_read. */
int ls_comparison_open(ls_comparison *out, const char *const *run_dirs, int count,
                       const ls_host *host, ls_error *err);
/* Frees the contents. */
void ls_comparison_close(ls_comparison *c);

/* Returns the letter that stands for a run in tables, "A" to "H". `run`: 0 to LS_COMPARED − 1. */
const char *ls_compared_letter(int run);

/* Writes the letters of the runs whose files have the same weights as that of `run`, such as "A,
 * C". Returns false if no other run's file does, or that of an earlier run, or if there is a doubt
 * about that of `run`; runs about whose files there is a doubt do not count. `run`: 0 to c->count
 * − 1. */
bool ls_compared_same(char out[LS_COMPARED * 3], const ls_comparison *c, int run);

/* Writes what speaks against runs with the same weights: one of them is not verified, or their
 * records contradict each other, with different results of the last evaluation on the same rows.
 * `run`: one for which ls_compared_same returns true. Returns false if nothing does. */
bool ls_compared_objection(char out[LS_SENTENCE], const ls_comparison *c, int run);

/* Writes what is wrong with a run's file of weights, such as "weights.safetensors of B has other
 * weights than its records say: …". Returns false if nothing is. */
bool ls_compared_doubt(char out[LS_SENTENCE], const ls_comparison *c, int run);

/* Returns what differs beside the configs, such as "The data differ"; NULL: nothing. */
const char *ls_compared_others(const ls_comparison *c);

/* Writes which run is the best and by how much, such as "B has the better test accuracy, 0.8390:
 * 0.0120 more than A." Returns false if the runs cannot be ranked, because they were evaluated by
 * another metric or on other rows, because all of them end with the same weights, or because
 * something speaks against runs with the same weights (ls_compared_objection). */
bool ls_compared_verdict(char out[LS_SENTENCE], const ls_comparison *c);

/* Appends the page: the curves of all runs, and the rows as tables. The thread must be in the "C"
 * locale. Errors: LS_ENOMEM. */
int ls_comparison_page(ls_buffer *out, const ls_comparison *c, ls_error *err);

#endif
