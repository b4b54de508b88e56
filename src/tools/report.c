#include "tools/report.h"

#include "base/error.h"
#include "store/durable.h"
#include "tools/report_html.h"
#include "json/c_locale.h"

/* In the run's own directory nothing but a plain file is meant. */
static int write_page(const char *path, int chosen, const ls_buffer *page, const ls_host *host,
                      ls_error *err)
{
    ls_error why;
    int status = chosen ? ls_write_file(path, page->text, page->length, host, &why)
                        : ls_replace_file(path, page->text, page->length, host, &why);
    return status ? ls_fail(err, status, "%.400s; choose another place with -o FILE", why.text)
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
    if (status == LS_OK)
        status = write_page(path.text, out_path != NULL, &page, host, err);
    ls_buffer_fini(&path);
    ls_buffer_fini(&page);
    ls_run_log_fini(&log);
    return status;
}
