/* How this program fails and speaks: Lockstep's own error structure, and lines on stderr. */
#ifndef SERVICE_REPORT_H
#define SERVICE_REPORT_H

#include <lockstep/host.h>
#include <lockstep/status.h>

/* Writes the message, returns the status. `err` may be NULL. */
__attribute__((format(printf, 3, 4))) int fail(ls_error *err, int status, const char *format, ...);

/* One line with time and level. Any thread: lines are not mixed. */
__attribute__((format(printf, 2, 3))) void say(ls_log_level level, const char *format, ...);

/* The library's log goes the same way; otherwise the defaults. */
extern const ls_host service_host;

#endif
