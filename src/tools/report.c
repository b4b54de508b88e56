#include "tools/report.h"

#include "base/error.h"
#include "store/durable.h"
#include "tools/report_html.h"
#include "json/c_locale.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

static int write_file(const char *path, const ls_buffer *page, ls_error *err)
{
    FILE *f = fopen(path, "wbe");
    int failed = !f || fwrite(page->text, 1, page->length, f) != page->length;
    int reason = errno;
    if (f && fclose(f) != 0 && !failed) {
        failed = 1;
        reason = errno;
    }
    return failed ? ls_fail(err, LS_EIO,
                            "%.300s: cannot write the report: %s; choose another place "
                            "with -o FILE",
                            path, strerror(reason))
                  : LS_OK;
}

int ls_report_write(const char *run_dir, const char *out_path, const ls_host *host, ls_error *err)
{
    ls_run_log log;
    ls_buffer page, path;
    int status = ls_run_log_read(&log, run_dir, host, err);
    if (status)
        return status;
    ls_buffer_init(&page, host);
    ls_buffer_init(&path, host);
    ls_buffer_put(&path, out_path ? out_path : run_dir);
    if (!out_path)
        ls_buffer_put(&path, "/report.html");
    ls_c_locale locale = ls_c_locale_enter();
    status = ls_report_page(&page, &log, NULL, err);
    ls_c_locale_leave(locale);
    if (status == LS_OK)
        status = ls_buffer_status(&path, err);
    if (status == LS_OK) /* the run's own page is replaced; what somebody names may be a device */
        status = out_path ? write_file(out_path, &page, err)
                          : ls_replace_file(path.text, page.text, page.length, host, err);
    ls_buffer_fini(&path);
    ls_buffer_fini(&page);
    ls_run_log_fini(&log);
    return status;
}
