/* SPDX-License-Identifier: MIT */
/* Host names and origins of the members. The progress thread has the names and origins of its host
 * group in c->peer. The callers have copies (ls_names_publish). */
#include "base/error.h"
#include "base/host.h"
#include "cluster/progress.h"

#include <stdio.h>
#include <string.h>

/* Appends "#" and `number` to the name of member m if a member before it has the same name. */
static void tell_apart(ls_cluster *c, int m, int number)
{
    char *host = c->peer[m].host;
    for (int k = 0; k < m; k++)
        if (strcmp(host, c->peer[k].host) == 0) {
            const size_t length = strnlen(host, LS_MEMBER_NAME - 8);
            snprintf(host + length, LS_MEMBER_NAME - length, "#%d", number);
            return;
        }
}

void ls_names_number(ls_cluster *c)
{
    for (int m = c->wire->members - 1; m > 0; m--)
        tell_apart(c, m, m);
}

/* Sets origin and name of member m. `was`: the same member in the former host group; NULL: it was
 * not in that one. */
static void name_member(ls_cluster *c, int m, const ls_peer *was)
{
    ls_peer *p = &c->peer[m];
    const ls_arrival *place = c->wire->place ? &c->wire->place[m] : NULL;
    /* this is the newcomer, admitted with this host group */
    if (!was && !place && c->now_regrouped > 0)
        place = &c->arrival;
    p->origin = was ? was->origin : place ? (int)place->number : m;
    if (was)
        memcpy(p->host, was->host, sizeof p->host);
    else if (place)
        snprintf(p->host, LS_MEMBER_NAME, "%.63s", place->host);
    else if (m == c->wire->member)
        snprintf(p->host, LS_MEMBER_NAME, "%s", c->host);
    else
        /* a number, until the member's first header brings its name */
        snprintf(p->host, LS_MEMBER_NAME, "%d", m);
}

void ls_names_take(ls_cluster *c, const ls_peer *before, const int *origin)
{
    for (int m = 0; m < c->wire->members; m++)
        name_member(c, m, before && origin[m] >= 0 ? &before[origin[m]] : NULL);
    /* The newcomer's own transport gives it the same name (ls_wire.place). */
    if (before && c->wire->admitted > 0)
        tell_apart(c, c->wire->admitted, c->peer[c->wire->admitted].origin);
}

int ls_names_room(ls_cluster *c, ls_error *err)
{
    const size_t count = (size_t)c->wire->members, before = (size_t)c->room;
    if (count <= before)
        return LS_OK;
    void *name = ls_alloc_array(c->options.host, count, sizeof *c->name);
    int *origin = ls_alloc_array(c->options.host, count, sizeof *c->origin);
    if (!name || !origin) {
        ls_free(c->options.host, name);
        ls_free(c->options.host, origin);
        return ls_fail(err, LS_ENOMEM, "out of memory for %zu members", count);
    }
    ls_free(c->options.host, c->name);
    ls_free(c->options.host, c->origin);
    c->name = name;
    c->origin = origin;
    c->room = (int)count;
    return LS_OK;
}

void ls_names_publish(ls_cluster *c)
{
    c->member = c->wire->member;
    c->members = c->wire->members;
    c->regrouped = c->now_regrouped;
    c->newcomer = c->wire->admitted;
    for (int m = 0; m < c->members; m++) {
        memcpy(c->name[m], c->peer[m].host, sizeof c->name[m]);
        c->origin[m] = c->peer[m].origin;
    }
}
