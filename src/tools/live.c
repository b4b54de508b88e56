#include "tools/live.h"

#include "base/error.h"
#include "base/host.h"
#include "tools/report_html.h"
#include "json/c_locale.h"

#include <math.h>
#include <pthread.h>
#include <string.h>

/* The types of records whose newest one is kept as it came. */
static const char *const types[] = {"run_start", "resume", "step",      "epoch",
                                    "eval",      "fault",  "nonfinite", "run_end"};
enum { TYPES = sizeof types / sizeof *types, STEP = 2 };

struct ls_live {
    const ls_host *host;
    pthread_mutex_t lock; /* of all below */
    ls_run_log log;
    ls_buffer newest[TYPES];
    uint64_t records;
};

static const char script[] =
    "const main=document.querySelector('main');\n"
    "const note=document.createElement('p');\n"
    "note.className='note';\n"
    "async function renew(){\n"
    "  if(!document.hidden)try{\n"
    "    const answer=await fetch('/',{cache:'no-store'});\n"
    "    if(!answer.ok)throw new Error(answer.status);\n"
    "    const page=new DOMParser().parseFromString(await answer.text(),'text/html');\n"
    "    main.replaceChildren(...page.querySelector('main').childNodes);\n"
    "    document.title=page.title;\n"
    "  }catch(e){\n"
    "    note.innerHTML='<strong>No answer.</strong> What is shown is from '+since+"
    "'; this page goes on asking.';\n"
    "    main.prepend(note);\n"
    "    setTimeout(renew,1000);\n"
    "    return;\n"
    "  }\n"
    "  since=new Date().toLocaleTimeString();\n"
    "  setTimeout(renew,1000);\n"
    "}\n"
    "let since=new Date().toLocaleTimeString();\n"
    "setTimeout(renew,1000);\n";

int ls_live_create(ls_live **out, const ls_host *host, ls_error *err)
{
    ls_live *l = ls_alloc(host, sizeof *l);
    if (!l || pthread_mutex_init(&l->lock, NULL) != 0) {
        ls_free(host, l);
        return ls_fail(err, LS_ENOMEM, "out of memory for the live page");
    }
    l->host = host;
    ls_run_log_init(&l->log, host);
    for (int i = 0; i < TYPES; i++)
        ls_buffer_init(&l->newest[i], host);
    *out = l;
    return LS_OK;
}

void ls_live_destroy(ls_live *l)
{
    if (!l)
        return;
    for (int i = 0; i < TYPES; i++)
        ls_buffer_fini(&l->newest[i]);
    ls_run_log_fini(&l->log);
    pthread_mutex_destroy(&l->lock);
    ls_free(l->host, l);
}

/* ---- records -------------------------------------------------------------------------------- */

/* The buffer is used again: a record of the same type is about as long. */
static void keep(ls_live *l, const char *type, const char *json, size_t length)
{
    for (int i = 0; i < TYPES; i++) {
        if (strcmp(types[i], type) != 0)
            continue;
        l->newest[i].length = 0;
        ls_buffer_add(&l->newest[i], json, length);
    }
}

int ls_live_record(ls_live *l, const char *json, size_t length, ls_error *err)
{
    char type[32];
    pthread_mutex_lock(&l->lock);
    int status = ls_run_log_add(&l->log, type, sizeof type, json, length, err);
    if (status == LS_OK) {
        keep(l, type, json, length);
        l->records++;
    }
    pthread_mutex_unlock(&l->lock);
    return status;
}

/* ---- answers -------------------------------------------------------------------------------- */

/* What a part of the step's time is, of all its parts together. */
static void add_share(ls_buffer *b, const cJSON *worker, int phase)
{
    double all = 0, part = 0;
    for (int i = 0; i < LS_PHASES; i++) {
        const cJSON *node = cJSON_GetObjectItemCaseSensitive(worker, ls_phase_keys[i]);
        const double value = cJSON_IsNumber(node) ? node->valuedouble : 0;
        all += value;
        part = i == phase ? value : part;
    }
    ls_buffer_format(b, "<td>%.0f %%</td>", all > 0 ? 100 * part / all : 0.0);
}

static void add_worker(ls_buffer *b, const cJSON *worker)
{
    const cJSON *index = cJSON_GetObjectItemCaseSensitive(worker, "worker");
    const cJSON *queued = cJSON_GetObjectItemCaseSensitive(worker, "queued");
    ls_buffer_format(b, "<tr><th>%d</th><td>%d</td>", cJSON_IsNumber(index) ? index->valueint : 0,
                     cJSON_IsNumber(queued) ? queued->valueint : 0);
    for (int i = 0; i < LS_PHASES; i++)
        add_share(b, worker, i);
    ls_buffer_put(b, "</tr>\n");
}

/* Of the newest step. */
static void add_workers(ls_buffer *b, const ls_live *l)
{
    ls_json *doc = NULL;
    const ls_buffer *step = &l->newest[STEP];
    if (step->length == 0 ||
        ls_json_parse(&doc, "", step->text, step->length, l->host, NULL) != LS_OK)
        return;
    const cJSON *worker, *workers = ls_log_node(doc, "workers");
    ls_buffer_put(b, "<section><h2>Workers in the newest step</h2>\n"
                     "<figure><table><thead><tr><th>worker</th><th>queued</th>");
    for (int i = 0; i < LS_PHASES; i++)
        ls_buffer_format(b, "<th>%s</th>", ls_phase_names[i]);
    ls_buffer_put(b, "</tr></thead><tbody>\n");
    cJSON_ArrayForEach(worker, workers) add_worker(b, worker);
    ls_buffer_put(b, "</tbody></table></figure></section>\n");
    ls_json_destroy(doc);
}

int ls_live_page(ls_live *l, ls_buffer *out, ls_error *err)
{
    ls_buffer workers;
    ls_buffer_init(&workers, l->host);
    ls_c_locale locale = ls_c_locale_enter();
    pthread_mutex_lock(&l->lock);
    add_workers(&workers, l);
    const ls_report_live live = {script, workers.text ? workers.text : ""};
    int status = ls_report_page(out, &l->log, &live, err);
    pthread_mutex_unlock(&l->lock);
    ls_c_locale_leave(locale);
    ls_buffer_fini(&workers);
    return status;
}

int ls_live_json(ls_live *l, ls_buffer *out, ls_error *err)
{
    pthread_mutex_lock(&l->lock);
    ls_buffer_format(out, "{\"records\":%llu", (unsigned long long)l->records);
    for (int i = 0; i < TYPES; i++) {
        if (l->newest[i].length == 0)
            continue;
        ls_buffer_format(out, ",\n\"%s\":", types[i]);
        ls_buffer_add(out, l->newest[i].text, l->newest[i].length);
    }
    ls_buffer_put(out, "}\n");
    pthread_mutex_unlock(&l->lock);
    return ls_buffer_status(out, err);
}
