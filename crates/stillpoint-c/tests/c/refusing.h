/* An allocator for tests, in place of libc's: it refuses requests from a chosen one on, or those that a function chooses. */
#ifndef REFUSING_H
#define REFUSING_H

#include <errno.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#ifdef __cplusplus
#define REFUSING_NOEXCEPT noexcept
extern "C" {
#else
#define REFUSING_NOEXCEPT
#endif

void *__libc_malloc(size_t bytes);
void *__libc_calloc(size_t count, size_t bytes);
void *__libc_realloc(void *memory, size_t bytes);
void *__libc_memalign(size_t align, size_t bytes);
void __libc_free(void *memory);

/* Whether requests are counted; how many there were; the first that is refused; whether all later ones are refused as well. */
static int counts_, requests_, first_refused_, refuses_all_;

/* Whether a request for as many bytes is refused. NULL: it is not. */
static int (*refuses_)(size_t bytes);

static int refused_(size_t bytes)
{
    int (*refuses)(size_t) = __atomic_load_n(&refuses_, __ATOMIC_SEQ_CST);
    if (refuses != NULL && refuses(bytes)) {
        errno = ENOMEM;
        return 1;
    }
    if (!__atomic_load_n(&counts_, __ATOMIC_SEQ_CST))
        return 0;
    int number = __atomic_fetch_add(&requests_, 1, __ATOMIC_SEQ_CST);
    if (refuses_all_ ? number < first_refused_ : number != first_refused_)
        return 0;
    errno = ENOMEM;
    return 1;
}

/* Refuses the request with this number, counted from now, and all later ones or none of them. Of all threads. */
static inline void refuse_from(int first, int all)
{
    first_refused_ = first;
    refuses_all_ = all;
    __atomic_store_n(&requests_, 0, __ATOMIC_SEQ_CST);
    __atomic_store_n(&counts_, 1, __ATOMIC_SEQ_CST);
}

/* Asks this function about each request. Of all threads. */
static inline void refuse_by(int (*refuses)(size_t bytes))
{
    __atomic_store_n(&refuses_, refuses, __ATOMIC_SEQ_CST);
}

/* Refuses nothing any more. Returns how many requests there were. */
static inline int refuse_nothing(void)
{
    __atomic_store_n(&counts_, 0, __ATOMIC_SEQ_CST);
    return __atomic_load_n(&requests_, __ATOMIC_SEQ_CST);
}

void *malloc(size_t bytes) REFUSING_NOEXCEPT
{
    return refused_(bytes) ? NULL : __libc_malloc(bytes);
}

void *calloc(size_t count, size_t bytes) REFUSING_NOEXCEPT
{
    return refused_(count * bytes) ? NULL : __libc_calloc(count, bytes);
}

void *realloc(void *memory, size_t bytes) REFUSING_NOEXCEPT
{
    return refused_(bytes) ? NULL : __libc_realloc(memory, bytes);
}

void *memalign(size_t align, size_t bytes) REFUSING_NOEXCEPT;
void *memalign(size_t align, size_t bytes) REFUSING_NOEXCEPT
{
    return refused_(bytes) ? NULL : __libc_memalign(align, bytes);
}

void *aligned_alloc(size_t align, size_t bytes) REFUSING_NOEXCEPT
{
    return memalign(align, bytes);
}

int posix_memalign(void **memory, size_t align, size_t bytes) REFUSING_NOEXCEPT
{
    void *given = memalign(align, bytes);
    if (given == NULL)
        return ENOMEM;
    *memory = given;
    return 0;
}

void free(void *memory) REFUSING_NOEXCEPT
{
    __libc_free(memory);
}

#ifdef __cplusplus
}
#endif

#endif
