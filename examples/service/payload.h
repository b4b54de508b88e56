/* What a request brings, in either of two forms: rows, or examples (example.h).
 *
 * application/octet-stream: one after another, as they are.
 *
 * application/json, for few: {"images": [ROW, …]}, or {"examples": [{"label": 3, "image": ROW}, …]}; rows of
 * floats are "rows" and "row", targets that are floats "target": [NUMBER, …]. A ROW is an array of its bytes or
 * floats as numbers, or a text that is base64 of them. */
#ifndef SERVICE_PAYLOAD_H
#define SERVICE_PAYLOAD_H

#include "example.h"

#include <lockstep/status.h>

/* A parsed number takes 64 bytes, and two in the body: larger bodies come as bytes. */
enum { PAYLOAD_JSON_MOST = 128 * 1024 };

typedef struct payload {
    const uint8_t *bytes; /* [count][example_bytes, or row_bytes], in the body or in `owned` */
    uint32_t count;
    uint8_t *owned;
} payload;

/* Examples, or rows alone; floats are finite, and bits bits. `body` outlives the payload. Errors: LS_EUNSUPPORTED (the content type), LS_EINVAL (too large for
 * JSON), LS_EDATA (what is wrong, and where), LS_ENOMEM. */
int payload_read(payload *out, const example_form *form, int examples, const char *content_type,
                 const char *body, size_t length, ls_error *err);
void payload_free(payload *p);

#endif
