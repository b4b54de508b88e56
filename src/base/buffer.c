/* SPDX-License-Identifier: MIT */
#include "base/buffer.h"

#include "base/error.h"
#include "base/host.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

void ls_buffer_init(ls_buffer *b, const ls_host *host)
{
    *b = (ls_buffer){.host = host};
}

void ls_buffer_fini(ls_buffer *b)
{
    ls_free(b->host, b->text);
    *b = (ls_buffer){.host = b->host};
}

int ls_buffer_status(const ls_buffer *b, ls_error *err)
{
    if (!b->failed)
        return LS_OK;
    return b->lacking ? ls_fail(err, LS_ENOMEM, "out of memory for %zu bytes of text", b->lacking)
                      : ls_fail(err, LS_ENOMEM, "out of memory for a text");
}

/* Ensures room for `more` bytes and a terminating zero. Returns false if memory has run out. */
static bool reserve(ls_buffer *b, size_t more)
{
    size_t need = b->length + more + 1, capacity = b->capacity ? b->capacity : 1024;
    if (b->failed || need <= b->capacity)
        return !b->failed;
    while (capacity < need)
        capacity *= 2;
    char *text = ls_alloc(b->host, capacity);
    if (!text) {
        b->failed = true;
        b->lacking = capacity;
        return false;
    }
    if (b->text)
        memcpy(text, b->text, b->length + 1);
    ls_free(b->host, b->text);
    b->text = text;
    b->capacity = capacity;
    return true;
}

void ls_buffer_add(ls_buffer *b, const char *text, size_t length)
{
    if (!reserve(b, length))
        return;
    memcpy(b->text + b->length, text, length);
    ls_buffer_keep(b, length);
}

char *ls_buffer_room(ls_buffer *b, size_t most)
{
    return reserve(b, most) ? b->text + b->length : NULL;
}

void ls_buffer_keep(ls_buffer *b, size_t length)
{
    b->length += length;
    b->text[b->length] = '\0';
}

void ls_buffer_put(ls_buffer *b, const char *text)
{
    ls_buffer_add(b, text, strlen(text));
}

void ls_buffer_format(ls_buffer *b, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    int n = vsnprintf(NULL, 0, format, args);
    va_end(args);
    if (n < 0 || !reserve(b, (size_t)n))
        return;
    va_start(args, format);
    vsnprintf(b->text + b->length, (size_t)n + 1, format, args);
    va_end(args);
    b->length += (size_t)n;
}
