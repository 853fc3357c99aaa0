/* SPDX-License-Identifier: MIT OR Apache-2.0
 *
 * What a thread has in the library, for the inline code of stillpoint/urcu.h and stillpoint/rcu.hpp. Not for programs: only a
 * version with another soname may change it, since code compiled before uses these offsets without a check. */
#ifndef STILLPOINT_THREAD_H
#define STILLPOINT_THREAD_H

#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* A thread's reader of a flavour of liburcu. While the thread is not registered, the state in the record is that of a reader that is away,
 * which is also read as the token: a section calls a function, and a quiescent state finds no new token. */
struct still_urcu_reader_ {
    char *record;
    /* The address of the domain's token; plus 1 if a section begins with a full fence. */
    uintptr_t token;
    /* In qsbr: the state that was reported last; 0 while the thread is offline. */
    uint64_t seen;
    /* Read-side sections beyond the first; bit 31: not registered. */
    uint32_t nested;
    uint32_t frame;
    void *seat;
    void *worker;
    void *ring;
};

/* A thread as a reader of the rcu domain of C++. */
struct still_rcu_thread_ {
    unsigned char *record; /* NULL before the first use, and after the thread's destructors have run */
    const uint64_t *token;
    uint32_t flags;
    uint32_t nested; /* regions beyond the outermost one */
    void *reader;
};

struct still_thread_ {
    struct still_urcu_reader_ urcu[4]; /* by the number of the flavour */
    struct still_rcu_thread_ rcu;
};

/* Before a thread's first use of the library, this is the address of initial values, to which nothing writes. So a thread has one word of
 * the memory that thread-local variables of late libraries share. */
extern __thread struct still_thread_ *still_thread_ __attribute__((__tls_model__("initial-exec")));

#ifdef __cplusplus
}
#endif

#endif
