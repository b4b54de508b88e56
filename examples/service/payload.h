/* The images of a request, in either of two forms.
 *
 * application/octet-stream: n images one after another, each of channels·height·width bytes; in
 * labelled form each behind one byte of label.
 *
 * application/json, for few: {"images": [IMAGE, …]}, or {"examples": [{"label": 3, "image": IMAGE}, …]};
 * an IMAGE is an array of its bytes as numbers, or a text that is base64 of them. */
#ifndef SERVICE_PAYLOAD_H
#define SERVICE_PAYLOAD_H

#include <lockstep/status.h>
#include <stddef.h>
#include <stdint.h>

/* A parsed number takes 64 bytes, and two in the body: larger bodies come as bytes. */
enum { PAYLOAD_JSON_MOST = 128 * 1024 };

typedef struct payload_form {
    int labelled;
    uint32_t image_bytes;
    int classes;
} payload_form;

typedef struct payload {
    const uint8_t *bytes; /* [count][label? + image_bytes], in the body or in `owned` */
    uint32_t count;
    uint8_t *owned;
} payload;

/* `body` outlives the payload. Errors: LS_EUNSUPPORTED (the content type), LS_EINVAL (too large for
 * JSON), LS_EDATA (what is wrong, and where), LS_ENOMEM. */
int payload_read(payload *out, const payload_form *form, const char *content_type, const char *body,
                 size_t length, ls_error *err);
void payload_free(payload *p);

#endif
