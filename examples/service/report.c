#include "report.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

int fail(ls_error *err, int status, const char *format, ...)
{
    va_list args;
    if (!err)
        return status;
    err->status = status;
    va_start(args, format);
    vsnprintf(err->text, sizeof err->text, format, args);
    va_end(args);
    return status;
}

/* One write, so that lines of several threads stay whole. */
static void write_line(ls_log_level level, const char *text)
{
    static const char *const names[] = {"debug", "info", "warning", "error"};
    char line[1024], stamp[32];
    struct timespec now;
    struct tm utc;
    clock_gettime(CLOCK_REALTIME, &now);
    gmtime_r(&now.tv_sec, &utc);
    strftime(stamp, sizeof stamp, "%Y-%m-%dT%H:%M:%S", &utc);
    int n = snprintf(line, sizeof line, "%s.%03ldZ %s: %s\n", stamp, now.tv_nsec / 1000000,
                     names[level], text);
    if (n >= (int)sizeof line) {
        n = sizeof line - 1;
        line[n - 1] = '\n';
    }
    if (write(STDERR_FILENO, line, (size_t)n) < 0)
        return; /* nobody listens */
}

void say(ls_log_level level, const char *format, ...)
{
    char text[900];
    va_list args;
    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    write_line(level, text);
}

static void log_line(void *user, ls_log_level level, const char *text)
{
    (void)user;
    if (level > LS_LOG_DEBUG)
        write_line(level, text);
}

const ls_host service_host = {.size = sizeof service_host, .log = log_line};
