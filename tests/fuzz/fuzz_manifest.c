/* A bundle's manifest: what is accepted names files that can only lie in the bundle, each once, and
 * reads the same after it was written. */
#include "fuzz/fuzz.h"
#include "store/manifest.h"

#include <string.h>

static const char name[] = "manifest.json";

static void check_file(const ls_manifest *m, size_t index)
{
    const ls_manifest_file *file = &m->file[index];
    fuzz_check(memchr(file->name, '\0', sizeof file->name) != NULL, "names end");
    fuzz_check(file->name[0] != '\0' && file->name[0] != '.' && !strchr(file->name, '/'),
               "files lie in the bundle");
    fuzz_check(strcmp(file->name, LS_BUNDLE_MANIFEST) != 0, "the manifest does not list itself");
    fuzz_check(ls_manifest_find(m, file->name) == file, "a file is listed once");
    fuzz_check(file->bytes <= UINT64_C(1) << 53, "sizes are exact");
    fuzz_check(strspn(file->sha256, "0123456789abcdef") == LS_SHA256_HEX - 1 &&
                   file->sha256[LS_SHA256_HEX - 1] == '\0',
               "hashes are hexadecimal");
    fuzz_check(file->line > 0, "every file has a line");
}

static void check_rewriting(const ls_manifest *m)
{
    ls_json_writer w;
    ls_manifest again;
    size_t length;
    ls_json_writer_init(&w, 0, NULL);
    ls_manifest_write(&w, m);
    const char *text = ls_json_writer_text(&w, &length, NULL);
    fuzz_check(text != NULL, "what was read can be written");
    fuzz_check(ls_manifest_parse(&again, name, text, length, NULL, NULL) == LS_OK,
               "what was written is accepted");
    fuzz_check(again.count == m->count, "what was written has as many files");
    for (size_t i = 0; i < m->count; i++)
        fuzz_check(strcmp(again.file[i].name, m->file[i].name) == 0 &&
                       strcmp(again.file[i].sha256, m->file[i].sha256) == 0 &&
                       again.file[i].bytes == m->file[i].bytes,
                   "what was written reads the same");
    ls_manifest_fini(&again);
    ls_json_writer_fini(&w);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    ls_manifest m;
    ls_error err = {0};
    int rc = ls_manifest_parse(&m, name, (const char *)data, size, NULL, &err);
    if (rc != LS_OK) {
        fuzz_check(rc == LS_EDATA && m.count == 0 && !m.file, "a refusal leaves nothing behind");
        fuzz_check_refusal(rc, &err, name);
        fuzz_check(size > (1 << 20) || fuzz_names_place(err.text, name),
                   "a refusal names line and column");
        return 0;
    }
    fuzz_check(m.count <= LS_BUNDLE_FILES, "files are counted");
    for (size_t i = 0; i < m.count; i++)
        check_file(&m, i);
    check_rewriting(&m);
    ls_manifest_fini(&m);
    return 0;
}
