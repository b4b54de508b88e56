/* SPDX-License-Identifier: MIT */
/* Reads the address and the secret of a run on several hosts. */
#include "cli/cli.h"

#include "base/error.h"
#include "base/host.h"
#include "base/plain_file.h"

#include <errno.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define MAKE "head -c 32 /dev/urandom > FILE" /* command that makes a secret, for messages */

static int check_length(const char *from, size_t count, ls_error *err)
{
    return count >= LS_TCP_SECRET_LEAST
               ? LS_OK
               : ls_fail(err, LS_EDATA,
                         "%s: expected at least %d bytes, found %zu; make it anew: " MAKE, from,
                         LS_TCP_SECRET_LEAST, count);
}

/* Checks the mode of the file with the secret. A file that other users may write is refused. A file
 * that others may read only causes a warning, because systems mount secrets with such modes
 * (Kubernetes 0644, Docker 0444) in containers that have no other users. */
static int check_mode(const char *path, const ls_host *host, ls_error *err)
{
    struct stat st;
    if (stat(path, &st) != 0)
        return LS_OK;
    const unsigned mode = (unsigned)st.st_mode & 07777;
    if (mode & (S_IWGRP | S_IWOTH))
        return ls_fail(err, LS_EDATA,
                       "%s: users other than its owner may write this secret (mode %04o): chmod "
                       "go-w it, and if they are not to be trusted, make it anew: " MAKE,
                       path, mode);
    if (mode & (S_IRGRP | S_IROTH))
        ls_log(host, LS_LOG_WARNING,
               "%s: users other than its owner may read this secret (mode %04o): unless there are "
               "none, as in a container, chmod 600 it",
               path, mode);
    return LS_OK;
}

static int read_file(cli_rendezvous *m, const char *path, const ls_host *host, ls_error *err)
{
    void *bytes = NULL;
    size_t count = 0;
    ls_error why = {0};
    int status = ls_read_plain_file(&bytes, &count, path, "a file with a secret", LS_EDATA,
                                    sizeof m->secret, host, &why);
    if (status)
        ls_fail(err, status, status == LS_ENOENT ? "%s; make one: " MAKE : "%s", why.text);
    if (status == LS_OK)
        status = check_mode(path, host, err);
    if (status == LS_OK)
        status = check_length(path, count, err);
    if (status == LS_OK)
        memcpy(m->secret, bytes, count);
    ls_free(host, bytes);
    m->place.secret_bytes = count;
    return status;
}

/* Reads the secret from a descriptor, up to its end. The descriptor may be a pipe. */
static int read_descriptor(cli_rendezvous *m, int fd, ls_error *err)
{
    size_t count = 0;
    char why[LS_REASON], from[40];
    ssize_t n = 1;
    snprintf(from, sizeof from, "--secret-fd %d", fd);
    while (n != 0 && count < sizeof m->secret) {
        n = read(fd, m->secret + count, sizeof m->secret - count);
        if (n < 0 && errno != EINTR)
            return ls_fail(err, LS_EIO, "%s: cannot be read: %s", from, ls_reason(why, errno));
        if (n > 0)
            count += (size_t)n;
    }
    m->place.secret_bytes = count;
    if (count == sizeof m->secret)
        return ls_fail(err, LS_EDATA, "%s: expected fewer than %zu bytes", from, count);
    return check_length(from, count, err);
}

int cli_set_rendezvous(cli_rendezvous *m, ls_trainer_cluster *o, const cli_arguments *a,
                       const ls_host *host, ls_error *err)
{
    if (!a->join && !a->listen)
        return LS_OK;
    m->place = (ls_tcp_place){.size = sizeof m->place,
                              .meet = a->join,
                              .listen = a->listen,
                              .advertise = a->advertise,
                              .members = a->members,
                              .timeout = (uint64_t)(a->wait_s * 1e9),
                              .secret = m->secret};
    o->tcp = &m->place;
    return a->secret ? read_file(m, a->secret, host, err) : read_descriptor(m, a->secret_fd, err);
}
