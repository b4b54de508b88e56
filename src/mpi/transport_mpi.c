/* SPDX-License-Identifier: MIT */
/* liblockstep-mpi.so: the transport between the members of a run over MPI's point-to-point
 * messages. <lockstep/sys/transport.h> describes the functions of a transport. A *transfer* is one
 * message that is sent or received.
 *
 * Only open and close can block in a function of MPI. poll tests transfers with MPI_Testsome and
 * sleeps between two tests, so that it returns at its caller's time limit. After abort no function
 * of MPI is called any more, not even MPI_Finalize, which can block for ever if a member has been
 * lost. */
#include "base/clock.h"
#include "base/error.h"
#include "base/host.h"

#include <lockstep/sys/transport.h>
#include <mpi.h>
#include <sched.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

/* poll yields the CPU YIELDS times between its tests. After that it sleeps NAP_NS nanoseconds
 * between two tests. */
enum { YIELDS = 100, NAP_NS = 30000 };

typedef struct mpi_wire {
    ls_wire base;
    MPI_Comm comm;
    bool started; /* this transport has started MPI, and close ends it */
    /* request[count] and transfer[count]: the transfers in progress. ended[ended_count]: the
     * transfers that have ended and that poll has not reported yet. `index` and `status`: results
     * of MPI_Testsome. All arrays have the capacity `room`. */
    MPI_Request *request;
    ls_transfer **transfer, **ended;
    int *index;
    MPI_Status *status;
    int count, ended_count, room;
} mpi_wire;

extern ls_transport_entry_fn ls_transport_entry; /* entry point of the plugin */

static int fail_mpi(ls_error *err, int status, int code, const char *what)
{
    char text[MPI_MAX_ERROR_STRING] = "";
    int length = 0;
    MPI_Error_string(code, text, &length);
    for (char *c = text; *c; c++)
        if (*c == '\n')
            *c = ' ';
    return ls_fail(err, status, "MPI, %s: %.300s", what, text);
}

/* ---- opening -------------------------------------------------------------------------------- */

/* Reads the version number that follows `name` in `text`. */
static bool version_after(const char *text, const char *name, int version[2])
{
    const char *at = strstr(text, name);
    return at && sscanf(at + strlen(name), "%*[^0-9]%d.%d", &version[0], &version[1]) == 2;
}

/* Refuses versions of MPI that do not work. MPICH 4 hung in trivial runs over three hosts. */
static int check_library(ls_error *err)
{
    char text[MPI_MAX_LIBRARY_VERSION_STRING] = "";
    int length = 0, v[2];
    MPI_Get_library_version(text, &length);
    if (version_after(text, "MPICH Version", v) && v[0] < 5)
        return ls_fail(err, LS_EUNSUPPORTED,
                       "MPICH %d.%d hangs when it starts over several hosts: use Open MPI 4.1 or "
                       "newer, or MPICH 5",
                       v[0], v[1]);
    if (version_after(text, "Open MPI v", v) && (v[0] < 4 || (v[0] == 4 && v[1] < 1)))
        return ls_fail(err, LS_EUNSUPPORTED, "Open MPI %d.%d is too old: use 4.1 or newer", v[0],
                       v[1]);
    return LS_OK;
}

/* Starts MPI, or checks that the program has started it with enough thread support. */
static int start_mpi(mpi_wire *w, const ls_wire_options *o, ls_error *err)
{
    int started = 0, ended = 0, level = 0, code = MPI_SUCCESS;
    MPI_Initialized(&started);
    MPI_Finalized(&ended);
    if (ended)
        return ls_fail(
            err, LS_EUNSUPPORTED,
            "MPI was finalized in this process and cannot be started again: next time call "
            "MPI_Init_thread before the first run and MPI_Finalize after the last, and pass a "
            "communicator (ls_trainer_cluster.mpi_comm)");
    if (!started && o->place)
        return ls_fail(
            err, LS_EINVAL,
            "ls_trainer_cluster.mpi_comm needs a program that has called MPI_Init_thread");
    w->started = !started;
    if (started)
        MPI_Query_thread(&level);
    else
        code = MPI_Init_thread(NULL, NULL, MPI_THREAD_SERIALIZED, &level);
    if (code != MPI_SUCCESS)
        return fail_mpi(err, LS_ESYSTEM, code, "starting");
    if (level < MPI_THREAD_SERIALIZED)
        return ls_fail(err, LS_EUNSUPPORTED,
                       "MPI was started for a single thread: request MPI_THREAD_MULTIPLE from "
                       "MPI_Init_thread");
    return LS_OK;
}

/* Makes a communicator of its own from the one in the options. All members call it. */
static int join(mpi_wire *w, const ls_wire_options *o, ls_error *err)
{
    MPI_Comm from = o->place ? *(const MPI_Comm *)o->place : MPI_COMM_WORLD;
    if (w->started)
        MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
    int code = MPI_Comm_dup(from, &w->comm);
    if (code == MPI_SUCCESS)
        code = MPI_Comm_set_errhandler(w->comm, MPI_ERRORS_RETURN);
    if (code == MPI_SUCCESS)
        code = MPI_Comm_rank(w->comm, &w->base.member);
    if (code == MPI_SUCCESS)
        code = MPI_Comm_size(w->comm, &w->base.members);
    if (code != MPI_SUCCESS)
        return fail_mpi(err, LS_ESYSTEM, code, "joining the other processes");
    return w->base.members <= LS_MEMBERS_MAX
               ? LS_OK
               : ls_fail(err, LS_EUNSUPPORTED,
                         "%d processes were started; at most %d are supported", w->base.members,
                         LS_MEMBERS_MAX);
}

static int open_mpi(ls_wire **out, const ls_wire_options *o, ls_error *err)
{
    mpi_wire *w = ls_alloc(NULL, sizeof *w);
    if (!w)
        return ls_fail(err, LS_ENOMEM, "out of memory for the MPI transport");
    int status = check_library(err);
    if (status == LS_OK)
        status = start_mpi(w, o, err);
    if (status == LS_OK)
        status = join(w, o, err);
    if (status) {
        ls_free(NULL, w);
        return status;
    }
    w->base.type = ls_transport_entry();
    *out = &w->base;
    return LS_OK;
}

/* ---- transfers ------------------------------------------------------------------------------ */

/* Enlarges the arrays if they have no room for one more transfer. Only the first steps of a run
 * allocate memory, because all steps have the same number of transfers. */
static int make_room(mpi_wire *w, ls_error *err)
{
    bool complete = true;
    size_t room = 0;
    if (w->count + w->ended_count < w->room)
        return LS_OK;
#define GROW(field)                                                                                \
    do {                                                                                           \
        room = (size_t)w->room;                                                                    \
        void *grown =                                                                              \
            complete ? ls_grown(NULL, w->field, (size_t)w->room, &room, sizeof *w->field) : NULL;  \
        complete = grown != NULL;                                                                  \
        w->field = complete ? grown : w->field;                                                    \
    } while (0)
    GROW(request);
    GROW(transfer);
    GROW(ended);
    GROW(index);
    GROW(status);
#undef GROW
    if (!complete)
        return ls_fail(err, LS_ENOMEM, "out of memory for %d messages",
                       w->count + w->ended_count + 1);
    w->room = (int)room;
    return LS_OK;
}

static int post_mpi(ls_wire *base, ls_transfer *t, ls_error *err)
{
    mpi_wire *w = (mpi_wire *)base;
    int status = make_room(w, err);
    if (status)
        return status;
    MPI_Request *request = &w->request[w->count];
    int code =
        t->incoming
            ? MPI_Irecv(t->data, (int)t->bytes, MPI_BYTE, t->peer, t->channel, w->comm, request)
            : MPI_Isend(t->data, (int)t->bytes, MPI_BYTE, t->peer, t->channel, w->comm, request);
    if (code != MPI_SUCCESS)
        return fail_mpi(err, LS_EIO, code, t->incoming ? "receiving" : "sending");
    w->transfer[w->count++] = t;
    return LS_OK;
}

/* Returns the error of a transfer that has ended. `failed`: MPI_Testsome has reported errors. */
static int check_status(const ls_transfer *t, MPI_Status *s, bool failed, ls_error *err)
{
    int bytes = 0, class = MPI_SUCCESS;
    if (failed && s->MPI_ERROR != MPI_SUCCESS && s->MPI_ERROR != MPI_ERR_PENDING) {
        MPI_Error_class(s->MPI_ERROR, &class);
        return fail_mpi(err, class == MPI_ERR_TRUNCATE ? LS_EDATA : LS_EIO, s->MPI_ERROR,
                        t->incoming ? "receiving" : "sending");
    }
    if (!t->incoming)
        return LS_OK;
    MPI_Get_count(s, MPI_BYTE, &bytes);
    return (size_t)bytes == t->bytes
               ? LS_OK
               : ls_fail(err, LS_EDATA, "a message has %d bytes, but %zu were expected", bytes,
                         t->bytes);
}

/* Removes the transfers that have ended from request[] and transfer[]. */
static void remove_finished(mpi_wire *w)
{
    int kept = 0;
    for (int i = 0; i < w->count; i++) {
        if (w->request[i] == MPI_REQUEST_NULL)
            continue;
        w->request[kept] = w->request[i];
        w->transfer[kept++] = w->transfer[i];
    }
    w->count = kept;
}

/* Tests all transfers in progress, and moves those that have ended to ended[]. */
static int test_all(mpi_wire *w, ls_error *err)
{
    int count = 0, status = LS_OK;
    const int code = MPI_Testsome(w->count, w->request, &count, w->index, w->status);
    if (code != MPI_SUCCESS && code != MPI_ERR_IN_STATUS)
        return fail_mpi(err, LS_EIO, code, "testing transfers");
    for (int i = 0; i < count && count != MPI_UNDEFINED && status == LS_OK; i++) {
        ls_transfer *t = w->transfer[w->index[i]];
        status = check_status(t, &w->status[i], code != MPI_SUCCESS, err);
        w->ended[w->ended_count++] = t;
    }
    if (count > 0 && count != MPI_UNDEFINED)
        remove_finished(w);
    return status;
}

/* Moves up to `most` transfers from ended[] to `out`, and returns their number. */
static int take_ended(mpi_wire *w, ls_transfer **out, int most)
{
    const int count = w->ended_count < most ? w->ended_count : most;
    if (count == 0)
        return 0;
    memcpy(out, w->ended, (size_t)count * sizeof *out);
    w->ended_count -= count;
    memmove(w->ended, w->ended + count, (size_t)w->ended_count * sizeof *w->ended);
    return count;
}

static void pause_before_poll(unsigned polls)
{
    const struct timespec nap = {.tv_nsec = NAP_NS};
    if (polls < YIELDS)
        sched_yield();
    else
        nanosleep(&nap, NULL);
}

static int poll_mpi(ls_wire *base, ls_transfer **ended, int most, uint64_t timeout_ns,
                    ls_error *err)
{
    mpi_wire *w = (mpi_wire *)base;
    const uint64_t until = ls_now_ns() + timeout_ns;
    for (unsigned polls = 0;; polls++) {
        int status = w->ended_count == 0 && w->count > 0 ? test_all(w, err) : LS_OK;
        if (status)
            return status;
        if (w->ended_count > 0 || ls_now_ns() >= until)
            return take_ended(w, ended, most);
        pause_before_poll(polls);
    }
}

/* ---- closing --------------------------------------------------------------------------------- */

static void close_mpi(ls_wire *base)
{
    mpi_wire *w = (mpi_wire *)base;
    MPI_Comm_free(&w->comm);
    if (w->started)
        MPI_Finalize();
    ls_free(NULL, w->request);
    ls_free(NULL, w->transfer);
    ls_free(NULL, w->ended);
    ls_free(NULL, w->index);
    ls_free(NULL, w->status);
    ls_free(NULL, w);
}

/* Returns 1, because MPI can still write to the memory of transfers in progress. */
static int abort_mpi(ls_wire *base)
{
    (void)base;
    return 1;
}

const ls_transport *ls_transport_entry(void)
{
    static const ls_transport wire_mpi = {.abi = LS_TRANSPORT_ABI,
                                          .size = sizeof(ls_transport),
                                          .name = "mpi",
                                          .open = open_mpi,
                                          .post = post_mpi,
                                          .poll = poll_mpi,
                                          .close = close_mpi,
                                          .abort = abort_mpi};
    return &wire_mpi;
}
