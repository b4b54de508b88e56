/* SPDX-License-Identifier: MIT */
/* The function table of the transport over TCP, which ls_transport_tcp returns. */
#include "base/error.h"
#include "base/host.h"
#include "base/sized.h"
#include "tcp/join.h"

#include <string.h>

/* Frees the transport. Connections are closed before the listening socket. Therefore, when a peer's
 * attempt to connect is refused, its old connections to this member are closed already (must_dial
 * in regroup.c). */
static void end_wire(ls_tcp_wire *w)
{
    struct joining *rendezvous = w->rendezvous;
    ls_tcp_free(w);
    ls_tcp_free_rendezvous(rendezvous);
}

/* Closes the transport. All messages have been passed to the kernel by now. ls_tcp_drain reads the
 * peers' data before the sockets are closed, because the kernel drops data in transit when a socket
 * is closed with unread data. */
static void close_tcp(ls_wire *base)
{
    ls_tcp_dismiss_waiting(((ls_tcp_wire *)base)->rendezvous, "the run has ended");
    ls_tcp_drain((ls_tcp_wire *)base);
    end_wire((ls_tcp_wire *)base);
}

/* Aborts the transport. Returns 0 (no memory of a transfer is in use), because the kernel has
 * copied all data that it was given. */
static int abort_tcp(ls_wire *base)
{
    end_wire((ls_tcp_wire *)base);
    return 0;
}

static int regroup_tcp(ls_wire **out, ls_wire *old, const ls_regroup *how, ls_error *err)
{
    ls_tcp_wire *w = NULL;
    int status = ls_tcp_regroup(&w, (ls_tcp_wire *)old, how, err);
    if (status == LS_OK)
        w->base.type = ls_transport_tcp();
    *out = status ? NULL : &w->base;
    return status;
}

static int open_tcp(ls_wire **out, const ls_wire_options *options, ls_error *err)
{
    ls_tcp_place place;
    ls_wire_options known = {0};
    *out = NULL;
    int status = ls_sized_take(&place, sizeof place, options->place, "ls_tcp_place", err);
    if (status)
        return status;
    ls_tcp_wire *w = ls_alloc(NULL, sizeof *w);
    if (!w)
        return ls_fail(err, LS_ENOMEM, "out of memory for a wire");
    memcpy(&known, options, options->size < sizeof known ? options->size : sizeof known);
    w->base.type = ls_transport_tcp();
    status = ls_tcp_join(w, &place, &known, err);
    if (status)
        ls_tcp_free(w);
    else
        *out = &w->base;
    return status;
}

const ls_transport *ls_transport_tcp(void)
{
    static const ls_transport wire_tcp = {.abi = LS_TRANSPORT_ABI,
                                          .size = sizeof(ls_transport),
                                          .name = "tcp",
                                          .open = open_tcp,
                                          .post = ls_tcp_post,
                                          .poll = ls_tcp_poll,
                                          .close = close_tcp,
                                          .abort = abort_tcp,
                                          .regroup = regroup_tcp,
                                          .arrivals = ls_tcp_arrivals};
    return &wire_tcp;
}
