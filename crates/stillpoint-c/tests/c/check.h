/* Shared by the C tests: a check that prints where it failed, and objects that are counted. */
#ifndef CHECK_H
#define CHECK_H

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "stillpoint.h"

#define CHECK(condition)                                                                                   \
    do {                                                                                                   \
        if (!(condition)) {                                                                                \
            fprintf(stderr, "%s:%d: not so: %s (still_error: \"%s\")\n", __FILE__, __LINE__, #condition,   \
                    still_error());                                                                        \
            exit(1);                                                                                       \
        }                                                                                                  \
    } while (0)

/* Checks that the call returns this number, and that still_error() contains these words. */
#define REFUSED(call, answer, words)                                                                       \
    do {                                                                                                   \
        long long got_ = (long long)(call);                                                                \
        if (got_ != (answer) || strstr(still_error(), words) == NULL) {                                    \
            fprintf(stderr, "%s:%d: %s gave %lld and said \"%s\"\n", __FILE__, __LINE__, #call, got_,      \
                    still_error());                                                                        \
            exit(1);                                                                                       \
        }                                                                                                  \
    } while (0)

struct object {
    struct still_object_callback callback;
    int value;
};

static int destroyed_;

static inline int destroyed(void)
{
    return __atomic_load_n(&destroyed_, __ATOMIC_SEQ_CST);
}

static inline struct object *make(int value)
{
    struct object *object = (struct object *)calloc(1, sizeof *object);
    CHECK(object != NULL);
    object->value = value;
    return object;
}

static inline void destroy(void *object, void *context) STILL_NOEXCEPT
{
    (void)context;
    /* A reader that still uses the object notices this. */
    ((struct object *)object)->value = -1;
    free(object);
    __atomic_add_fetch(&destroyed_, 1, __ATOMIC_SEQ_CST);
}

static inline void called(struct still_callback *callback) STILL_NOEXCEPT
{
    destroy(callback, NULL);
}

#endif
