#include "text.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

void text_free(text *t)
{
    free(t->at);
    *t = (text){0};
}

char *text_room(text *t, size_t bytes)
{
    if (t->capacity - t->length > bytes)
        return t->at + t->length;
    size_t wanted = 2 * t->capacity > 256 ? 2 * t->capacity : 256;
    if (wanted < t->length + bytes + 1)
        wanted = t->length + bytes + 1;
    char *grown = realloc(t->at, wanted);
    if (!grown) {
        t->lost = 1;
        return NULL;
    }
    t->at = grown;
    t->capacity = wanted;
    return t->at + t->length;
}

void text_put(text *t, const char *format, ...)
{
    va_list args;
    char *room = text_room(t, 128);
    if (!room)
        return;
    va_start(args, format);
    int n = vsnprintf(room, t->capacity - t->length, format, args);
    va_end(args);
    if (n >= 0 && (size_t)n >= t->capacity - t->length) {
        room = text_room(t, (size_t)n);
        if (!room)
            return;
        va_start(args, format);
        n = vsnprintf(room, t->capacity - t->length, format, args);
        va_end(args);
    }
    t->length += n > 0 ? (size_t)n : 0;
}

void text_put_json(text *t, const char *string)
{
    text_put(t, "\"");
    for (const unsigned char *c = (const unsigned char *)string; *c; c++) {
        if (*c == '"' || *c == '\\')
            text_put(t, "\\%c", *c);
        else if (*c < 0x20)
            text_put(t, "\\u%04x", *c);
        else
            text_put(t, "%c", *c);
    }
    text_put(t, "\"");
}
