/* Pixels that are decoded, as a model reads them. */
#ifndef DATA_PICTURE_H
#define DATA_PICTURE_H

#include <lockstep/host.h>
#include <stdbool.h>
#include <stdint.h>

/* One byte behind the last sample of a row can be read, too. Pixels lie in memory, or come by rows: row(source, y) is
 * asked for lines from the first to the last, each of them lives until the sixteenth behind it is asked for. */
typedef struct ls_picture {
    int width, height, channels; /* 1: grey; 3 or 4: red, green, blue, alpha */
    const uint8_t *pixel;        /* [height][width][channels] */
    const uint8_t *(*row)(void *source, int y);
    void *source;
} ls_picture;

/* Memory that is asked for once, and again where more is needed; zeroed to begin with. */
typedef struct ls_room {
    void *memory;
    size_t bytes;
} ls_room;

/* At least so many bytes, whatever is in them; NULL where there is no memory for them. */
void *ls_room_of(ls_room *room, size_t bytes, const ls_host *host);
void ls_room_free(ls_room *room, const ls_host *host);

/* → out [channels][height][width]. Colours become grey (0.299 red + 0.587 green + 0.114 blue) where `channels` is
 * 1, and grey becomes three equal channels where it is 3; alpha is ignored. */
void ls_picture_convert(uint8_t *out, int channels, const ls_picture *p);

/* The same, scaled to height × width by an average over triangles as wide as what they shrink, so that the shorter
 * side fits, and cut to the middle. False: no memory. */
bool ls_picture_scale(uint8_t *out, int channels, int height, int width, const ls_picture *p,
                      ls_room *room, const ls_host *host);

#endif
