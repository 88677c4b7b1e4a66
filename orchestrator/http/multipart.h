/* multipart.h - streaming parser of multipart/form-data (RFC 7578), for bodies of any size and hostile bytes.
 */
#pragma once

#include "common/buf.h"

struct multipart;

#define MULTIPART_MAX_NAME 1024 /* bytes of a field or file name */

struct multipart_part {
    char name[MULTIPART_MAX_NAME];     /* the field */
    char filename[MULTIPART_MAX_NAME]; /* raw UTF-8 with its directories; filename* (RFC 5987) wins; "" when
                                          none */
    bool has_filename;
    char content_type[128]; /* "" when not given */
};

/* A failing callback ends the parse; its error is given on. */
struct multipart_events {
    int (*part)(void *state, const struct multipart_part *p, struct error *err);
    int (*data)(void *state, const char *data, size_t len, struct error *err); /* of the current part */
    int (*part_end)(void *state, struct error *err);
};

/* content_type is the request's header. ERR_MEDIA_TYPE: not multipart/form-data, or no usable boundary. */
int multipart_new(const char *content_type, const struct multipart_events *events, void *state,
                  struct multipart **ret, struct error *err) MUST_CHECK;
int multipart_feed(struct multipart *m, const char *data, size_t len, struct error *err) MUST_CHECK;
/* ERR_INVALID when the closing boundary has not come. */
int multipart_end(struct multipart *m, struct error *err) MUST_CHECK;
void multipart_free(struct multipart *m);
