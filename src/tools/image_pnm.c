/* Binary PGM and PPM. Source: the netpbm project's format descriptions pgm(5) and ppm(5). */
#include "base/error.h"
#include "base/host.h"
#include "tools/image.h"

#include <string.h>

typedef struct cursor {
    const char *path;
    const uint8_t *bytes;
    size_t length, at;
    ls_error *err;
} cursor;

static int is_space(uint8_t c)
{
    return c == ' ' || (c >= '\t' && c <= '\r');
}

/* A number behind white space and comments. */
static int read_number(cursor *c, int most, const char *what, int *out)
{
    int value = 0, digits = 0;
    while (c->at < c->length && (is_space(c->bytes[c->at]) || c->bytes[c->at] == '#')) {
        if (c->bytes[c->at] == '#')
            while (c->at < c->length && c->bytes[c->at] != '\n')
                c->at++;
        else
            c->at++;
    }
    const size_t begin = c->at;
    for (; c->at < c->length && c->bytes[c->at] >= '0' && c->bytes[c->at] <= '9' && value <= most;
         c->at++, digits++)
        value = 10 * value + (c->bytes[c->at] - '0');
    *out = value;
    if (digits == 0 || value < 1 || value > most)
        return ls_fail(c->err, LS_EDATA, "%.300s: offset %zu: expected the %s, 1 to %d", c->path,
                       begin, what, most);
    return LS_OK;
}

int ls_pnm_read(ls_image *out, const char *path, const uint8_t *bytes, size_t length,
                const ls_shape *shape, const ls_host *host, ls_error *err)
{
    cursor c = {path, bytes, length, 2, err};
    int most = 0;
    *out = (ls_image){.channels = bytes[1] == '6' ? 3 : 1};
    int status = read_number(&c, LS_IMAGE_MOST, "width", &out->width);
    if (status == LS_OK)
        status = read_number(&c, LS_IMAGE_MOST, "height", &out->height);
    if (status == LS_OK)
        status = read_number(&c, 255, "largest value", &most);
    if (status == LS_OK)
        status = ls_image_fits(out, path, shape, err);
    if (status)
        return status;
    c.at++; /* one white space */
    const size_t need = (size_t)out->width * (size_t)out->height * (size_t)out->channels;
    if (c.at > length || length - c.at < need)
        return ls_fail(
            err, LS_EDATA,
            "%.300s: offset %zu: expected %zu bytes of pixels, found %zu; the file is cut "
            "off",
            path, c.at, need, c.at > length ? (size_t)0 : length - c.at);
    out->pixel = ls_alloc(host, need);
    if (!out->pixel)
        return ls_fail(err, LS_ENOMEM, "%.300s: out of memory for its pixels", path);
    for (size_t i = 0; i < need; i++) {
        const unsigned v = bytes[c.at + i] < most ? bytes[c.at + i] : (unsigned)most;
        out->pixel[i] = (uint8_t)((v * 255u + (unsigned)most / 2) / (unsigned)most);
    }
    return LS_OK;
}
