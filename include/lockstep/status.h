/* SPDX-License-Identifier: MIT */
/* Status codes and error messages: how every Lockstep function reports a failure.
 *
 *     ls_error err;
 *     if (ls_pool_create(&pool, &options, &err) != LS_OK)
 *         fprintf(stderr, "%s\n", err.text);
 *
 * A function that can fail returns LS_OK (zero) or a negative ls_status. It takes an `ls_error *`
 * as its last parameter; the caller may pass NULL if the status code is enough. The function that
 * detects a failure writes the one-line message; its callers in the library can add where the
 * failure happened. The caller owns the ls_error, which is written on failure only. No error is
 * kept in a global variable such as errno.
 *
 * NULL: a pointer that is passed to a function may be NULL only where its description says so;
 * every `err` may. If another pointer is NULL, the function does nothing:
 *
 * - a function that returns a status returns LS_EINVAL, with a message
 * - a function that returns a number or a pointer returns 0 or NULL
 * - a function without a result returns
 *
 * Callbacks: a function of the program that returns a status (a job of a pool, a start hook, a
 * receiver of records, a reader of data) returns LS_OK, or a negative ls_status after it has
 * written a message to `err->text`. Any other number counts as LS_EINVAL. The library makes one
 * line of the message: it replaces control characters and invalid UTF-8 by '?', and cuts a text
 * without a terminating zero. An empty message is replaced by the name of the callback and of the
 * status. The reason is LS_REASON_NONE, whatever the callback has written.
 *
 * Arguments: the address of a created object comes first, then the object on which a function
 * works, its inputs, its outputs, and `err`. If a function that creates an object fails, it sets
 * the pointer to NULL. The contents of all other outputs are undefined after an error.
 *
 * Sizes: a structure that the program allocates begins with a field `size`, to which the program
 * sets the structure's size before the call (`ls_model_info info = {.size = sizeof info}`). With
 * the size, programs and libraries of different versions work together. There is one rule for all
 * of these structures:
 *
 * - Smaller than in this library (the program has older headers): fields that are missing count as
 *   zero; if the structure is an output, they are not written.
 * - Larger (the program has newer headers): fields that this library does not know must be zero;
 *   if the structure is an output, they are set to zero.
 * - A size that cannot be one, such as 0, is refused with LS_EINVAL.
 *
 * A field that was not set is zero, which selects the field's default or is refused. Structures
 * that the library allocates (ls_progress, ls_summary, ls_result, ls_worker) have no `size`: they
 * grow only at the end, so read them through the library's pointer and do not put them into arrays.
 * ls_error has neither: its size is fixed, and new fields take the place of reserved ones.
 *
 * Integers: a number of rows in one call or data set is a uint32_t. Sums over a run (steps, rows of
 * an epoch's progress) are uint64_t. Numbers of bytes and of values in an array are size_t. Small
 * numbers, such as those of workers, channels, classes and entries of options, are int.
 */
#ifndef LOCKSTEP_STATUS_H
#define LOCKSTEP_STATUS_H

#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif
#pragma GCC visibility push(default)

/* Status codes. The values are part of the ABI: new ones are appended, and none is renumbered. */
typedef enum ls_status {
    LS_OK = 0,
    LS_EINVAL = -1,        /* the call breaks a rule of the function's documentation */
    LS_ENOMEM = -2,        /* host or device memory ran out */
    LS_ENOENT = -3,        /* a named input does not exist */
    LS_EIO = -4,           /* the operating system failed to read or write */
    LS_EDATA = -5,         /* a data file is damaged or not of the expected kind */
    LS_ECONFIG = -6,       /* a configuration or a model is invalid */
    LS_EUNSUPPORTED = -7,  /* this library or device cannot do what was asked; another might */
    LS_EDEVICE = -8,       /* a device or its driver failed */
    LS_EABORTED = -9,      /* another rank (participant) of a collective operation failed first */
    LS_ETIMEDOUT = -10,    /* a deadline passed */
    LS_ESTALLED = -11,     /* a worker stopped answering and was abandoned */
    LS_ECANCELED = -12,    /* ls_pool_cancel was called: jobs that had not begun are dropped */
    LS_EINTERRUPTED = -13, /* ls_trainer_interrupt was called: stopped after a whole step */
    LS_EAGAIN = -14,       /* a bounded queue is full or empty */
    LS_ECLOSED = -15,      /* a queue or a pool was closed */
    LS_ENONFINITE = -16,   /* a loss or a weight became NaN or infinite; a number of the caller's
                            * that is not finite is LS_EINVAL or LS_EDATA */
    LS_ESYSTEM = -17,      /* the operating system refused a thread or another resource */
    LS_EINTERNAL = -18,    /* a bug in Lockstep */
    LS_EDIVERGED = -19     /* replicas that must be bit-identical differ */
} ls_status;

/* A time limit in nanoseconds, from the beginning of the call that waits. There is one rule: as a
 * field of a structure, 0 stands for the default, which the field's description names; as an
 * argument of a function, 0 means that the function does not wait, and a function that waits for
 * ever is called with LS_FOREVER.
 * In a wait for workers of a pool or ranks of a collective, time during which the whole process is
 * stopped (SIGSTOP, a frozen container) counts only for a small part: after the stop, the wait has
 * about as much time left as before. Time during which a thread waits for a CPU counts fully. */
typedef uint64_t ls_timeout;
#define LS_FOREVER UINT64_MAX /* no time limit */

/* Size of ls_error.text in bytes, terminating zero included. Longer messages are truncated. */
#define LS_ERROR_TEXT 472

/* Reasons for which a program may want to react to an error, for example by a question to its user.
 * A program reads the reason, never the message. The values are part of the ABI: new ones are
 * appended, and none is renumbered. */
typedef enum ls_error_reason {
    LS_REASON_NONE = 0,      /* any other reason */
    LS_REASON_DECIMAL = 1,   /* numbers of a table do not fit the decimal mark: set data.decimal */
    LS_REASON_SEPARATOR = 2, /* the fields of a table can be separated in several ways: set
                              * data.separator */
    LS_REASON_ENCODING = 3,  /* a table is not UTF-8: set data.encoding */
    LS_REASON_CLASSES = 4,   /* the target of a table has too many different texts for classes: set
                              * data.labels if it is a number */
    LS_REASON_NO_FILES = 5   /* no searched directory has the files of a built-in dataset */
} ls_error_reason;

/* An error: its status, its reason and its message. The structure has 512 bytes in every version.
 */
typedef struct ls_error {
    int status;               /* the ls_status that was returned */
    int reason;               /* an ls_error_reason */
    int reserved[8];          /* 0; fields of later versions */
    char text[LS_ERROR_TEXT]; /* one line of UTF-8 without a newline, zero-terminated */
} ls_error;

/* Returns the name of a status, such as "LS_ENOMEM", or "unknown status" if the number is not a
 * status. The text is static. Any thread. */
const char *ls_status_name(int status);

#pragma GCC visibility pop
#ifdef __cplusplus
}
#endif
#endif
