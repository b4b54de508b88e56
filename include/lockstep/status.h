/* Status codes and error messages: how every Lockstep call reports a failure.
 *
 *     ls_error err;
 *     if (ls_pool_create(&pool, &options, &err) != LS_OK)
 *         fprintf(stderr, "%s\n", err.text);
 *
 * A function that can fail returns LS_OK (zero) or a negative ls_status. It takes an `ls_error *`
 * as its last parameter; NULL is allowed when the caller wants the code alone. The callee that
 * detects a failure writes the one-line message; its callers at most add where it happened. An
 * ls_error belongs to its caller and is only written on failure. Nothing here is global, so every function
 * of this header may be called from any thread.
 */
#ifndef LOCKSTEP_STATUS_H
#define LOCKSTEP_STATUS_H

#ifdef __cplusplus
extern "C" {
#endif
#pragma GCC visibility push(default)

/* The values are part of the ABI: append, never renumber. */
typedef enum ls_status {
    LS_OK = 0,
    LS_EINVAL = -1,        /* a call that breaks the rules of the function's documentation */
    LS_ENOMEM = -2,        /* host or device memory ran out */
    LS_ENOENT = -3,        /* a named input does not exist */
    LS_EIO = -4,           /* the operating system failed to read or write */
    LS_EDATA = -5,         /* a data file is damaged or is not what it should be */
    LS_ECONFIG = -6,       /* a configuration or a model is wrong */
    LS_EUNSUPPORTED = -7,  /* the back end declines; the caller may try another form */
    LS_EDEVICE = -8,       /* a device or its driver failed */
    LS_EABORTED = -9,      /* another member of the group failed first */
    LS_ETIMEDOUT = -10,    /* a deadline passed */
    LS_ESTALLED = -11,     /* a worker no longer answers and was given up */
    LS_ECANCELED = -12,    /* the caller cancelled */
    LS_EINTERRUPTED = -13, /* stopped at the caller's request, in good order */
    LS_EAGAIN = -14,       /* a bounded queue is full or empty */
    LS_ECLOSED = -15,      /* a queue or a pool was closed */
    LS_ENONFINITE = -16,   /* a loss or a weight became NaN or infinite */
    LS_ESYSTEM = -17,      /* the operating system refused a thread or another resource */
    LS_EINTERNAL = -18,    /* a bug in Lockstep */
    LS_EDIVERGED = -19     /* replicas that must be equal differ */
} ls_status;

/* Bytes of an error's text, the terminating zero included; longer messages are cut. */
#define LS_ERROR_TEXT 508

typedef struct ls_error {
    int status;               /* the ls_status that was returned */
    char text[LS_ERROR_TEXT]; /* one line, no newline at its end, UTF-8 */
} ls_error;

/* The name of a status, such as "LS_ENOMEM"; "unknown status" for any other number. Static text. */
const char *ls_status_name(int status);

#pragma GCC visibility pop
#ifdef __cplusplus
}
#endif
#endif
