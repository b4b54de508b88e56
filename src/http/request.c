/* SPDX-License-Identifier: MIT */
/* Checks how a request says where its body ends, and takes the path from its target (guard.h). */
#include "http/guard.h"

#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>

static const char blanks[] = " \t";

bool http_is_type(const char *content_type, const char *wanted)
{
    if (!content_type)
        return false;
    content_type += strspn(content_type, blanks);
    size_t length = strcspn(content_type, ";");
    while (length > 0 && strchr(blanks, content_type[length - 1]))
        length--;
    return length == strlen(wanted) && strncasecmp(content_type, wanted, length) == 0;
}

/* The headers of a request that say where its body ends. */
typedef struct framing {
    int encodings, lengths; /* number of headers Transfer-Encoding and Content-Length */
    const char *encoding;   /* value of the last Transfer-Encoding */
    const char *malformed;  /* a header on which the server relies, as it should be called; NULL:
                             * none is malformed */
} framing;

/* Finds a header that begins with a name on which the server relies and goes on. libmicrohttpd
 * 0.9.75 appends the second line of a folded header, and a blank before the colon, to the name. */
static const char *find_malformed(const char *key)
{
    static const char *const names[] = {MHD_HTTP_HEADER_HOST, MHD_HTTP_HEADER_ORIGIN,
                                        MHD_HTTP_HEADER_CONTENT_LENGTH,
                                        MHD_HTTP_HEADER_TRANSFER_ENCODING};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (strncasecmp(key, names[i], strlen(names[i])) == 0 && key[strlen(names[i])])
            return names[i];
    return NULL;
}

static enum MHD_Result take_header(void *user, enum MHD_ValueKind kind, const char *key,
                                   const char *value)
{
    framing *f = user;
    (void)kind;
    f->malformed = f->malformed ? f->malformed : find_malformed(key);
    if (strcasecmp(key, MHD_HTTP_HEADER_TRANSFER_ENCODING) == 0) {
        f->encodings++;
        f->encoding = value ? value : "";
    }
    f->lengths += strcasecmp(key, MHD_HTTP_HEADER_CONTENT_LENGTH) == 0;
    return MHD_YES;
}

unsigned http_framing_check(struct MHD_Connection *c, const char *version, char *why, size_t size)
{
    framing f = {0};
    MHD_get_connection_values(c, MHD_HEADER_KIND, take_header, &f);
    if (f.malformed) {
        snprintf(why, size, "%s: expected a header on one line, with the colon after the name",
                 f.malformed);
        return MHD_HTTP_BAD_REQUEST;
    }
    if (f.encodings > 0 && (f.lengths > 0 || strcmp(version, MHD_HTTP_VERSION_1_1) != 0)) {
        snprintf(why, size, "Transfer-Encoding: not with %s",
                 f.lengths > 0 ? "Content-Length" : version);
        return MHD_HTTP_BAD_REQUEST;
    }
    if (f.lengths > 1) {
        snprintf(why, size, "Content-Length: expected one, found %d", f.lengths);
        return MHD_HTTP_BAD_REQUEST;
    }
    if (f.encodings > 1 || (f.encodings == 1 && strcasecmp(f.encoding, "chunked") != 0)) {
        snprintf(why, size, "Transfer-Encoding: expected chunked, found %s%.100s",
                 f.encodings > 1 ? "several, the last " : "", f.encoding);
        return MHD_HTTP_NOT_IMPLEMENTED;
    }
    return 0;
}

const char *http_path(const char *target, char *authority, size_t size)
{
    authority[0] = '\0';
    if (strncasecmp(target, "http://", 7) != 0 && strncasecmp(target, "https://", 8) != 0)
        return target;
    const char *begin = strstr(target, "://") + 3;
    const size_t length = strcspn(begin, "/");
    snprintf(authority, size, "%.*s", (int)(length < size ? length : size - 1), begin);
    return begin[length] ? begin + length : "/";
}
