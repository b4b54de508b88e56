/* SPDX-License-Identifier: MIT */
/* The parts of ls_inspect (inspect.h): finding the kind of the data, a look at tables, at arrays
 * and at folders of pictures, and opening the data, which most of them do. */
#ifndef DATA_INSPECT_PARTS_H
#define DATA_INSPECT_PARTS_H

#include "data/inspect.h"

/* Numbers are taken as classes only if at most this many of them are different. Whole numbers in
 * arrays may be more (inspect_arrays.c). */
enum { LS_MOST_CLASSES = 20 };

/* ---- opening (inspect_open.c) ---------------------------------------------------------------- */

/* Returns whether the user has set a key of `data`. */
bool ls_inspect_is_given(const ls_inspection *l, const char *key);
/* Opens the training and test rows as l->split, in place of those that are open. Logs to `host`.
 * Errors: those of ls_dataset_open. */
int ls_inspect_open(ls_inspection *l, const ls_host *host, ls_error *err);
/* Closes the rows that are open, if any. */
void ls_inspect_close(ls_inspection *l);

/* ---- the kind of data (inspect_kind.c) ------------------------------------------------------- */

/* Returns whether `folder`, which may be "", has something called `name` that is no directory. */
bool ls_inspect_is_file(const char *folder, const char *name);
/* Finds the kind of the data, l->kind, and the names of the files of arrays, and checks the keys
 * that the user has set. A public dataset that was recognised by its files is open afterwards.
 * Errors: LS_ENOENT, LS_EINVAL, LS_ECONFIG, those of opening the data. */
int ls_inspect_kind(ls_inspection *l, ls_error *err);

/* ---- a look at each kind --------------------------------------------------------------------- */

/* Opens a table, chooses its target and whether that is a number, and finds the columns that are
 * left out (inspect_tables.c). Errors: those of opening the data. */
int ls_inspect_table(ls_inspection *l, ls_error *err);
/* Opens arrays, chooses how targets and dimensions are read, and finds the arrays that are not used
 * (inspect_arrays.c). Errors: LS_EDATA (all targets are equal), those of opening the data. */
int ls_inspect_arrays(ls_inspection *l, ls_error *err);
/* Lists a folder of pictures, chooses the size and the channels of the rows, and counts rows and
 * classes (inspect_pictures.c). Errors: those of listing the folder; those of decoding, if none of
 * the pictures that are tried can be decoded. */
int ls_inspect_folder(ls_inspection *l, ls_error *err);

#endif
