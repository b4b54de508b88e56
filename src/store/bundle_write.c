#include "base/error.h"
#include "base/host.h"
#include "store/folder.h"
#include "store/io.h"
#include "store/manifest.h"
#include "store/temporary.h"
#include "store/writer.h"

#include <assert.h>
#include <fcntl.h>
#include <string.h>

struct ls_bundle {
    const ls_host *host;
    char *path; /* what it will be called, PARENT/NAME; for messages */
    int parent; /* descriptors */
    int folder; /* the hidden directory, locked; -1: it has its name, or is gone */
    char hidden[LS_TEMPORARY_NAME];
    ls_manifest manifest;
    int writing; /* `writer` is in use */
    char writing_name[LS_BUNDLE_NAME + 1];
    ls_file_writer writer;
    ls_error failure; /* the first one */
};

/* Notes the first failure, which every later call returns again. */
static int fail_again(ls_bundle *b, int status, ls_error *err)
{
    if (b->failure.status == LS_OK)
        b->failure.status = status;
    return ls_fail(err, b->failure.status, "%s", b->failure.text);
}

static int fail_io(ls_bundle *b, const char *operation, int error, ls_error *err)
{
    if (b->failure.status == LS_OK)
        ls_io_fail(&b->failure, b->path, operation, error);
    return fail_again(b, LS_EIO, err);
}

static int check_name(const char *name, ls_error *err)
{
    if (ls_bundle_name_allowed(name))
        return LS_OK;
    return ls_fail(err, LS_EINVAL,
                   "\"%.140s\": expected a name of 1 to %d letters, digits, '.', '_' and '-' that "
                   "begins with a letter or a digit and is not \"%s\"",
                   name, LS_BUNDLE_NAME, LS_BUNDLE_MANIFEST);
}

static int allocate(ls_bundle **out, const char *parent, const char *name, const ls_host *host,
                    ls_error *err)
{
    ls_bundle *b = ls_alloc(host, sizeof *b);
    *out = b;
    if (!b)
        return ls_fail(err, LS_ENOMEM, "%s: out of memory for a bundle", ls_io_tail(parent));
    b->host = host;
    b->parent = b->folder = -1;
    b->path = ls_io_join(parent, name, host);
    if (!b->path)
        return ls_fail(err, LS_ENOMEM, "%s: out of memory for a bundle", ls_io_tail(parent));
    return ls_manifest_init(&b->manifest, host, err);
}

int ls_bundle_begin(ls_bundle **out, const char *parent, const char *name, const ls_host *host,
                    ls_error *err)
{
    ls_bundle *b = NULL;
    int rc = check_name(name, err);
    *out = NULL;
    if (rc == LS_OK && ls_folder_original(name) > 0)
        rc = ls_fail(err, LS_EINVAL, "\"%.140s\": names that end in \"%s\" are taken", name,
                     LS_FOLDER_REPLACED);
    if (rc == LS_OK)
        rc = allocate(&b, parent, name, host, err);
    if (rc != LS_OK)
        goto failed;
    int error = ls_io_open(&b->parent, AT_FDCWD, parent, O_RDONLY | O_DIRECTORY);
    if (error) {
        b->parent = -1;
        rc = ls_io_fail(err, parent, "open the directory", error);
        goto failed;
    }
    ls_folder_recover(b->parent);
    ls_temporary_sweep(b->parent);
    error = ls_temporary_folder(&b->folder, b->hidden, b->parent, name);
    if (error) {
        rc = ls_io_fail(err, b->path, "create", error);
        goto failed;
    }
    *out = b;
    return LS_OK;
failed:
    ls_bundle_destroy(b);
    return rc;
}

/* Finishes the file that is being written, if there is one. */
static int finish_file(ls_bundle *b, ls_error *err)
{
    if (b->failure.status != LS_OK)
        return fail_again(b, LS_OK, err);
    if (!b->writing)
        return LS_OK;
    ls_manifest_file *file = &b->manifest.file[b->manifest.count];
    b->writing = 0;
    strcpy(file->name, b->writing_name);
    file->bytes = b->writer.bytes;
    int rc = ls_file_writer_finish(&b->writer, file->sha256, &b->failure);
    if (rc != LS_OK)
        return fail_again(b, rc, err);
    b->manifest.count++;
    return LS_OK;
}

static int open_writer(ls_bundle *b, const char *name, ls_error *err)
{
    char *path = ls_io_join(b->path, name, b->host);
    if (!path) {
        ls_fail(&b->failure, LS_ENOMEM, "%s: out of memory", ls_io_tail(b->path));
        return fail_again(b, LS_ENOMEM, err);
    }
    int rc = ls_file_writer_open_at(&b->writer, b->folder, path, b->host, &b->failure);
    ls_free(b->host, path);
    return rc == LS_OK ? LS_OK : fail_again(b, rc, err);
}

int ls_bundle_open_file(ls_file_writer **out, ls_bundle *b, const char *name, ls_error *err)
{
    *out = NULL;
    int rc = finish_file(b, err);
    if (rc == LS_OK)
        rc = check_name(name, err);
    if (rc != LS_OK)
        return rc;
    if (ls_manifest_find(&b->manifest, name))
        return ls_fail(err, LS_EINVAL, "%s: already has a file \"%s\"", ls_io_tail(b->path), name);
    if (b->manifest.count == LS_BUNDLE_FILES)
        return ls_fail(err, LS_EINVAL, "%s: expected at most %d files", ls_io_tail(b->path),
                       LS_BUNDLE_FILES);
    rc = open_writer(b, name, err);
    if (rc != LS_OK)
        return rc;
    strcpy(b->writing_name, name);
    b->writing = 1;
    *out = &b->writer;
    return LS_OK;
}

int ls_bundle_put(ls_bundle *b, const char *name, const void *bytes, size_t count, ls_error *err)
{
    ls_file_writer *w;
    int rc = ls_bundle_open_file(&w, b, name, err);
    if (rc == LS_OK)
        rc = ls_file_writer_write(w, bytes, count, err);
    return rc == LS_OK ? finish_file(b, err) : rc;
}

static int write_manifest(ls_bundle *b, ls_error *err)
{
    size_t length;
    ls_json_writer w;
    ls_json_writer_init(&w, 2, b->host);
    ls_manifest_write(&w, &b->manifest);
    const char *text = ls_json_writer_text(&w, &length, &b->failure);
    int rc = text ? LS_OK : fail_again(b, LS_ENOMEM, err);
    if (rc == LS_OK)
        rc = open_writer(b, LS_BUNDLE_MANIFEST, err);
    if (rc == LS_OK) {
        rc = ls_file_writer_write(&b->writer, text, length, &b->failure);
        if (rc == LS_OK)
            rc = ls_file_writer_write(&b->writer, "\n", 1, &b->failure);
        if (rc == LS_OK)
            rc = ls_file_writer_finish(&b->writer, NULL, &b->failure);
        ls_file_writer_abandon(&b->writer);
        if (rc != LS_OK)
            rc = fail_again(b, rc, err);
    }
    ls_json_writer_fini(&w);
    return rc;
}

int ls_bundle_commit(ls_bundle *b, ls_error *err)
{
    assert(b->folder >= 0); /* not committed yet */
    int rc = finish_file(b, err);
    if (rc == LS_OK)
        rc = write_manifest(b, err);
    if (rc != LS_OK)
        return rc;
    int error = ls_io_sync_folder(b->folder);
    if (error)
        return fail_io(b, "sync the directory", error, err);
    error = ls_folder_install(b->parent, b->hidden, ls_io_base(b->path));
    if (error)
        return fail_io(b, "give the bundle its name", error, err);
    (void)ls_io_close(b->folder); /* the lock with it */
    b->folder = -1;
    error = ls_io_sync_folder(b->parent);
    if (error)
        return fail_io(b, "sync its directory", error, err);
    ls_folder_forget(b->parent, b->hidden, ls_io_base(b->path));
    return LS_OK;
}

void ls_bundle_destroy(ls_bundle *b)
{
    if (!b)
        return;
    if (b->writing)
        ls_file_writer_abandon(&b->writer);
    if (b->folder >= 0) {
        (void)ls_temporary_remove(b->parent, b->hidden, b->folder);
        (void)ls_io_close(b->folder);
    }
    if (b->parent >= 0)
        (void)ls_io_close(b->parent);
    ls_manifest_fini(&b->manifest);
    ls_free(b->host, b->path);
    ls_free(b->host, b);
}
