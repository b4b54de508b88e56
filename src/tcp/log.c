/* SPDX-License-Identifier: MIT */
/* Log lines: what this member waits for, and which callers it refuses. */
#include "base/clock.h"
#include "tcp/join.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#define AGAIN_NS UINT64_C(30000000000) /* interval at which an unchanged text is logged */
/* Shortest time between a logged text and a different text, unless the different text is `news`.
 * (Two reasons why no member answers can alternate, and would fill the log.) */
#define CHANGE_NS UINT64_C(2000000000)
enum { MOST_COMPLAINTS = 16 /* most warnings about refused callers */ };

void ls_tcp_log(const joining *j, ls_log_level level, const char *format, ...)
{
    char text[TCP_NOTE + 100];
    va_list list;
    if (!j->options.say)
        return;
    va_start(list, format);
    vsnprintf(text, sizeof text, format, list);
    va_end(list);
    j->options.say(j->options.user, (int)level, text);
}

bool ls_tcp_log_waiting(joining *j, bool news, const char *format, ...)
{
    char text[sizeof j->told] = "";
    const uint64_t now = ls_now_ns();
    va_list list;
    va_start(list, format);
    vsnprintf(text, sizeof text, format, list);
    va_end(list);
    const bool same = strcmp(text, j->told) == 0;
    if (j->told_ns && now - j->told_ns < (same ? AGAIN_NS : news ? 0 : CHANGE_NS))
        return false;
    memcpy(j->told, text, sizeof text);
    j->told_ns = now;
    ls_tcp_log(j, LS_LOG_INFO, "%s", text);
    return true;
}

void ls_tcp_list_hosts(char *out, size_t size, const joining *j, const ls_tcp_set *set)
{
    size_t used = 0;
    out[0] = '\0';
    for (int i = 0; i < j->vote.members && used < size; i++)
        if (ls_tcp_set_has(set, i))
            used += (size_t)snprintf(out + used, size - used, "%s%s", used ? ", " : "",
                                     j->entry[i].host);
}

void ls_tcp_say_apart(char *out, size_t size, const joining *j, const char *host,
                      const ls_tcp_set *apart, int members)
{
    char hosts[160];
    const int count = ls_tcp_set_count(apart);
    ls_tcp_list_hosts(hosts, sizeof hosts, j, apart);
    if (count == 0)
        snprintf(out, size, "host %s was lost during its admission", host);
    else if (count == members && count > 1)
        snprintf(out, size,
                 "host %s and the run's hosts (%s) do not reach each other: has it ended, or is "
                 "there a firewall between them?",
                 host, hosts);
    else
        snprintf(out, size, "host %s and %s %s do not reach each other: a firewall between them?",
                 host, count == 1 ? "host" : "hosts", hosts);
}

void ls_tcp_log_refused(joining *j, int fd, const char *host, const char *why)
{
    struct sockaddr_storage from = {0};
    socklen_t bytes = sizeof from;
    char name[TCP_HOST], address[80] = "?";
    uint8_t packed[16];
    uint32_t port;
    if (j->complaints >= MOST_COMPLAINTS)
        return;
    ls_tcp_take_name(name, host);
    if (getpeername(fd, (struct sockaddr *)&from, &bytes) == 0) {
        ls_tcp_pack_address(packed, &port, &from);
        ls_tcp_show_address(address, packed, 0);
    }
    char text[sizeof j->refused] = "";
    snprintf(text, sizeof text, "host %s (%s) %s, and was turned away", name, address, why);
    if (strcmp(text, j->refused) == 0)
        return; /* the same caller again */
    memcpy(j->refused, text, sizeof text);
    ls_tcp_log(j, LS_LOG_WARNING, "%s%s", text,
               ++j->complaints == MOST_COMPLAINTS ? "; further ones are not reported" : "");
}
