/* SPDX-License-Identifier: MIT */
/* Fills in pages: replaces marks <!--NAME--> by text. Used only in src/page. */
#ifndef PAGE_TEMPLATE_H
#define PAGE_TEMPLATE_H

#include "base/buffer.h"
#include "json/writer.h"

/* The text that replaces the mark <!--name-->; `put` writes it. A mark for which there is no part
 * is removed. */
typedef struct ls_page_part {
    const char *name;
    void (*put)(ls_buffer *out, const void *data);
} ls_page_part;

/* Appends the page `text` with its marks replaced. `parts` ends with a NULL name; `data` is passed
 * to the function `put` of each part. */
void ls_page_fill(ls_buffer *out, const char *text, const ls_page_part *parts, const void *data);

/* Appends the writer's text and a newline, escaped so that they can be part of a page. */
void ls_page_add_line(ls_buffer *out, ls_json_writer *w);

#endif
