#include "store/manifest.h"

#include "base/error.h"
#include "base/host.h"
#include "store/io.h"
#include "json/fields.h"

#include <string.h>

/* Beyond this a double skips whole numbers. */
#define MAX_BYTES 9007199254740992.0

static int is_alphanumeric(char c)
{
    return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z');
}

int ls_bundle_name_allowed(const char *name)
{
    size_t n = 0;
    for (; name[n]; n++)
        if (n == LS_BUNDLE_NAME || !(is_alphanumeric(name[n]) || (n > 0 && strchr("._-", name[n]))))
            return 0;
    return n > 0 && strcmp(name, LS_BUNDLE_MANIFEST) != 0;
}

int ls_manifest_init(ls_manifest *m, const ls_host *host, ls_error *err)
{
    m->host = host;
    m->count = 0;
    m->file = ls_alloc_array(host, LS_BUNDLE_FILES, sizeof *m->file);
    return m->file ? LS_OK : ls_fail(err, LS_ENOMEM, "out of memory for a manifest");
}

void ls_manifest_fini(ls_manifest *m)
{
    ls_free(m->host, m->file);
    memset(m, 0, sizeof *m);
}

const ls_manifest_file *ls_manifest_find(const ls_manifest *m, const char *name)
{
    for (size_t i = 0; i < m->count; i++)
        if (strcmp(m->file[i].name, name) == 0)
            return &m->file[i];
    return NULL;
}

void ls_manifest_write(ls_json_writer *w, const ls_manifest *m)
{
    ls_json_open_object(w, NULL);
    ls_json_put_int(w, "schema", LS_MANIFEST_SCHEMA);
    ls_json_open_array(w, "files");
    for (size_t i = 0; i < m->count; i++) {
        ls_json_open_object(w, NULL);
        ls_json_put_string(w, "name", m->file[i].name);
        ls_json_put_uint(w, "bytes", m->file[i].bytes);
        ls_json_put_string(w, "sha256", m->file[i].sha256);
        ls_json_close(w);
    }
    ls_json_close(w);
    ls_json_close(w);
}

/* ---- reading -------------------------------------------------------------------------------- */

static int is_sha256(const char *text)
{
    return strlen(text) == LS_SHA256_HEX - 1 &&
           strspn(text, "0123456789abcdef") == LS_SHA256_HEX - 1;
}

static void read_name(ls_manifest *m, ls_manifest_file *file, ls_fields *f)
{
    const char *name;
    if (!ls_field_text(f, "name", NULL, &name))
        return;
    if (!ls_bundle_name_allowed(name))
        ls_fields_fail(f, ls_field_any(f, "name"),
                       "expected a file's name: at most %d letters, digits, '.', '_' and '-'",
                       LS_BUNDLE_NAME);
    else if (ls_manifest_find(m, name))
        ls_fields_fail(f, ls_field_any(f, "name"), "the file \"%s\" is listed twice", name);
    else
        strcpy(file->name, name);
}

static void read_contents(ls_manifest_file *file, ls_fields *f)
{
    double bytes;
    const char *sha256;
    if (ls_field_double(f, "bytes", 0, MAX_BYTES, NULL, &bytes)) {
        file->bytes = (uint64_t)bytes;
        if ((double)file->bytes != bytes)
            ls_fields_fail(f, ls_field_any(f, "bytes"), "expected a whole number of bytes");
    }
    if (ls_field_text(f, "sha256", NULL, &sha256)) {
        if (is_sha256(sha256))
            strcpy(file->sha256, sha256);
        else
            ls_fields_fail(f, ls_field_any(f, "sha256"),
                           "expected 64 lower-case hexadecimal digits");
    }
}

static int read_file(ls_manifest *m, const ls_json *doc, const cJSON *node, ls_error *err)
{
    ls_fields f;
    int column;
    ls_manifest_file *file = &m->file[m->count];
    if (m->count == LS_BUNDLE_FILES)
        return ls_json_fail_value(err, doc, node, LS_ECONFIG, "expected at most %d files",
                                  LS_BUNDLE_FILES);
    if (ls_json_where_value(doc, node, &file->line, &column) != LS_OK)
        file->line = 1;
    ls_fields_begin(&f, doc, node, "a file", err);
    read_name(m, file, &f);
    read_contents(file, &f);
    m->count++;
    return ls_fields_end(&f);
}

static int read_files(ls_manifest *m, const ls_json *doc, const cJSON *files, ls_error *err)
{
    int rc = LS_OK;
    if (!cJSON_IsArray(files))
        return ls_json_fail_value(err, doc, files, LS_ECONFIG,
                                  "expected an array of files, found %s", ls_json_kind(files));
    for (const cJSON *node = files->child; node && rc == LS_OK; node = node->next)
        rc = read_file(m, doc, node, err);
    return rc;
}

static int read_manifest(ls_manifest *m, const ls_json *doc, ls_error *err)
{
    ls_fields f;
    long schema;
    ls_fields_begin(&f, doc, ls_json_root(doc), "the manifest", err);
    if (ls_field_int(&f, "schema", 0, 1 << 30, NULL, &schema) && schema != LS_MANIFEST_SCHEMA)
        ls_fields_fail(&f, ls_field_any(&f, "schema"),
                       "expected schema %d, found %ld, which another version wrote",
                       LS_MANIFEST_SCHEMA, schema);
    const cJSON *files = ls_field_any(&f, "files");
    if (!files)
        ls_fields_fail(&f, NULL, "expected a key \"files\"");
    int rc = ls_fields_end(&f);
    return rc == LS_OK ? read_files(m, doc, files, err) : rc;
}

int ls_manifest_parse(ls_manifest *out, const char *name, const char *text, size_t length,
                      const ls_host *host, ls_error *err)
{
    const ls_json_limits limits = {.depth = 4, .values = 2 + 1 + 4 * LS_BUNDLE_FILES + 8};
    ls_json *doc = NULL;
    ls_error why = {0};
    int rc = ls_manifest_init(out, host, err);
    if (rc != LS_OK)
        return rc;
    rc = ls_json_parse_limited(&doc, ls_io_tail(name), text, length, &limits, host, &why);
    if (rc == LS_OK)
        rc = read_manifest(out, doc, &why);
    ls_json_destroy(doc);
    if (rc == LS_OK)
        return LS_OK;
    ls_manifest_fini(out);
    if (rc == LS_ENOMEM)
        return ls_fail(err, rc, "%s", why.text);
    return ls_fail(err, LS_EDATA, "%s; use another copy of the bundle", why.text);
}
