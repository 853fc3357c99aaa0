/* What a test calls of one copy of the library. */
#ifndef COPY_H
#define COPY_H

#include <errno.h>

#include "stillpoint.h"

struct copy {
    struct still_domain *(*domain_default)(void);
    struct still_domain *(*domain_new)(const struct still_domain_options *);
    int (*domain_free)(struct still_domain *);
    int (*synchronize)(const struct still_domain *, int64_t);
    struct still_reader *(*reader_new)(const struct still_domain *, uint32_t);
    int (*reader_free)(struct still_reader *);
    const char *(*error)(void);
    void (*on_report)(still_report_fn *, void *);
    int (*reads)(struct still_reader *, struct still_domain *);
    void (*flavour)(void);
    int (*timers)(uint32_t lcores);
};

/* The copy of this program or plugin. */
const struct copy *copy(void);

#endif
