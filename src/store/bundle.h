/* A bundle: a directory of files that appears whole or not at all, and can prove that it is whole.
 *
 *     ls_bundle *b;
 *     int rc = ls_bundle_begin(&b, "runs/x/checkpoints", "step-1200", host, &err);
 *     if (rc == LS_OK)
 *         rc = ls_bundle_put(b, "state.json", text, length, &err);
 *     if (rc == LS_OK)
 *         rc = ls_bundle_open_file(&writer, b, "weights.safetensors", &err);
 *     if (rc == LS_OK)
 *         rc = ls_safetensors_write(writer, …, &err);
 *     if (rc == LS_OK)
 *         rc = ls_bundle_commit(b, &err);
 *     ls_bundle_destroy(b);                      // of an uncommitted one nothing is left
 *
 * It is written under a hidden name, ".step-1200.lockstep-PID-N", and renamed when everything in
 * it, the manifest last, is on the disk. `manifest.json` holds the name, size and SHA-256 of each
 * file. What a killed process left under hidden names is removed by the next ls_bundle_begin or
 * ls_bundle_prune in the same directory: a living writer holds a lock (flock) on what it writes, so
 * nothing else is touched. Where the file system has no such locks, left-overs stay.
 *
 * Names of bundles and files are 1 to 128 letters, digits, '.', '_' and '-', and begin with a
 * letter or a digit; "manifest.json" is taken, and for bundles what ends in ".replaced".
 *
 * Errors: LS_EIO "PATH: cannot OPERATION: REASON"; LS_EDATA for what is damaged, naming the file,
 * its line and column or offset, what was expected and the fix; LS_EINVAL for a name that is not
 * allowed; LS_ENOMEM. Any thread; one bundle belongs to one thread at a time. Different threads and
 * processes may work in one directory.
 */
#ifndef STORE_BUNDLE_H
#define STORE_BUNDLE_H

#include "store/durable.h"

#define LS_BUNDLE_MANIFEST "manifest.json"
#define LS_BUNDLE_NAME 128  /* most bytes of a name */
#define LS_BUNDLE_FILES 256 /* most files of a bundle, the manifest not counted */

/* ---- writing -------------------------------------------------------------------------------- */

typedef struct ls_bundle ls_bundle;

/* Begins the bundle `name` in the directory `parent`, which must exist, after removing what killed
 * processes left there. */
int ls_bundle_begin(ls_bundle **out, const char *parent, const char *name, const ls_host *host,
                    ls_error *err);

/* Begins a file and lends its writer, which is valid until the next call on the bundle. Only
 * ls_file_writer_write may be called on it: the next ls_bundle_* call finishes the file. */
int ls_bundle_open_file(ls_file_writer **out, ls_bundle *b, const char *name, ls_error *err);

/* A whole file at once. */
int ls_bundle_put(ls_bundle *b, const char *name, const void *bytes, size_t count, ls_error *err);

/* Finishes the last file, writes the manifest, makes everything last and gives the bundle its name.
 * A bundle of that name that is already there is replaced (a directory without a manifest is not,
 * unless it is empty: LS_EIO): in one step (RENAME_EXCHANGE) where the
 * file system can; elsewhere the old one waits as "NAME.replaced", which counts as NAME until
 * the new one has the name, and is removed then. So one of the two is there at every moment.
 *
 * Fails if anything failed before. On failure nothing has changed, but for one case: when syncing
 * `parent`, the last step, fails, the new bundle stands complete but might not survive a loss of
 * power; the old one may still be there under a hidden name. */
int ls_bundle_commit(ls_bundle *b, ls_error *err);

/* Frees the bundle; removes its files if it was not committed. NULL is allowed. */
void ls_bundle_destroy(ls_bundle *b);

/* ---- reading -------------------------------------------------------------------------------- */

typedef struct ls_bundle_reader ls_bundle_reader;

/* Opens the directory `path` and verifies it: the manifest strictly, and of each file size and
 * SHA-256. Files that the manifest does not name are nobody's business. As long as it is open,
 * ls_bundle_prune leaves it alone. Errors: LS_ENOENT when there is no such directory; LS_EDATA,
 * LS_EIO, LS_ENOMEM. */
int ls_bundle_open(ls_bundle_reader **out, const char *path, const ls_host *host, ls_error *err);
void ls_bundle_close(ls_bundle_reader *r); /* NULL is allowed */

/* The directory's path as it was opened (by ls_bundle_latest: PARENT/NAME), and its last part. */
const char *ls_bundle_path(const ls_bundle_reader *r);
const char *ls_bundle_name(const ls_bundle_reader *r);

/* One file of a bundle. Belongs to the reader. */
typedef struct ls_bundle_file {
    const char *name;
    const char *path; /* PARENT/NAME/name */
    uint64_t bytes;
    const char *sha256; /* 64 hexadecimal digits */
} ls_bundle_file;

/* In the order in which they were added. */
size_t ls_bundle_files(const ls_bundle_reader *r);
const ls_bundle_file *ls_bundle_file_at(const ls_bundle_reader *r, size_t index);

/* The file of that name. Errors: LS_EDATA when there is none. */
int ls_bundle_find(const ls_bundle_file **out, const ls_bundle_reader *r, const char *name,
                   ls_error *err);

/* Reads a whole file of at most `limit` bytes, verified once more, with a zero behind it that
 * `count` does not count. The caller frees it with ls_free(host, …). */
int ls_bundle_read(char **out, size_t *count, const ls_bundle_reader *r, const char *name,
                   size_t limit, ls_error *err);

/* ---- many bundles in one directory ---------------------------------------------------------- */

/* Names in ascending order, where runs of digits count as numbers: step-900 stands before
 * step-1000. So name bundles such that the newest comes last. */
typedef struct ls_bundle_names {
    const ls_host *host;
    size_t count;
    char **name;
} ls_bundle_names;

/* Lists the directories in `parent` that have a manifest. They are not verified. A `parent` that
 * does not exist has none. A bundle whose replacing was cut short is listed as NAME.replaced, and
 * opens under that name. Errors: LS_EIO, LS_ENOMEM. `out` is empty after a failure. */
int ls_bundle_list(ls_bundle_names *out, const char *parent, const ls_host *host, ls_error *err);
void ls_bundle_names_fini(ls_bundle_names *names);

/* Hears of each broken bundle, newest first: its name and what ls_bundle_open said. */
typedef void ls_bundle_skipped(void *context, const char *name, const ls_error *why);

/* Opens the newest bundle that is whole; `skipped` (may be NULL) hears of those that are newer and
 * broken. Errors: LS_ENOENT when there are no bundles; LS_EDATA when none of them is whole, saying
 * what is wrong with the oldest; LS_EIO, LS_ENOMEM. */
int ls_bundle_latest(ls_bundle_reader **out, const char *parent, ls_bundle_skipped *skipped,
                     void *context, const ls_host *host, ls_error *err);

/* Removes what killed processes left, then all bundles but the newest `keep` (at least 1; LS_EINVAL
 * otherwise). If none of these is whole, the newest that is whole stays as well. A bundle that
 * somebody has open stays until another time. Each is renamed to a hidden name first, so a half
 * removed one is never taken for a bundle. Goes on after a failure and returns the first.
 * Reads the newest bundle to verify it. Errors: LS_EIO, LS_ENOMEM. */
int ls_bundle_prune(const char *parent, size_t keep, const ls_host *host, ls_error *err);

#endif
