/* A bundle's table of contents, manifest.json:
 *
 *     {"schema": 1,
 *      "files": [{"name": "state.json", "bytes": 412, "sha256": "9f86d0…"}, …]}
 */
#ifndef STORE_MANIFEST_H
#define STORE_MANIFEST_H

#include "hash/sha256.h"
#include "store/bundle.h"
#include "json/json.h"

#define LS_MANIFEST_SCHEMA 1

typedef struct ls_manifest_file {
    char name[LS_BUNDLE_NAME + 1];
    char sha256[LS_SHA256_HEX];
    uint64_t bytes;
    int line; /* in the text it was read from */
} ls_manifest_file;

/* The caller's memory; zeroed, it is empty. */
typedef struct ls_manifest {
    const ls_host *host;
    size_t count;
    ls_manifest_file *file; /* room for LS_BUNDLE_FILES, or NULL */
} ls_manifest;

/* May a bundle or a file of one be called that? The manifest's own name may not. */
int ls_bundle_name_allowed(const char *name);

int ls_manifest_init(ls_manifest *m, const ls_host *host, ls_error *err); /* LS_ENOMEM */
void ls_manifest_fini(ls_manifest *m);

/* The file of that name, or NULL. */
const ls_manifest_file *ls_manifest_find(const ls_manifest *m, const char *name);

void ls_manifest_write(ls_json_writer *w, const ls_manifest *m);

/* Reads `length` bytes of `text`, which messages call `name`: just these keys, names as above and
 * each once, whole numbers of bytes, 64 lower-case hexadecimal digits. `out` is initialised here,
 * and empty after a failure. Errors: LS_EDATA "NAME:LINE:COLUMN: expected …", LS_ENOMEM. */
int ls_manifest_parse(ls_manifest *out, const char *name, const char *text, size_t length,
                      const ls_host *host, ls_error *err);

#endif
