/* <urcu/pointer.h> as inline code: an acquire load, a release store, and exchanges that are both. */
#ifndef STILLPOINT_URCU_STATIC_POINTER_H
#define STILLPOINT_URCU_STATIC_POINTER_H

#include <stddef.h>

/* The pointer in the variable p. */
#define _rcu_dereference(p) __atomic_load_n(&(p), __ATOMIC_ACQUIRE)

/* The names of variables in these macros differ from call to call, so that calls within calls do not shadow them. */
#define STILL_JOINED_(a, b) a##b
#define STILL_NUMBERED_(name, number) STILL_JOINED_(name, number)

/* Stores v at the address p. */
#define _rcu_set_pointer(p, v) STILL_SET_(p, v, STILL_NUMBERED_(still_stored_, __COUNTER__))
#define STILL_SET_(p, v, stored)                                                             \
    do {                                                                                     \
        __typeof__(*(p)) stored = (v);                                                       \
        __atomic_store_n((p), stored, __ATOMIC_RELEASE);                                     \
    } while (0)

/* Stores v at the address p, and returns the old pointer. */
#define _rcu_xchg_pointer(p, v) STILL_XCHG_(p, v, STILL_NUMBERED_(still_stored_, __COUNTER__))
#define STILL_XCHG_(p, v, stored)                                                            \
    __extension__({                                                                          \
        __typeof__(*(p)) stored = (v);                                                       \
        __atomic_exchange_n((p), stored, __ATOMIC_SEQ_CST);                                  \
    })

/* Stores _new at the address p if old is there, and returns the pointer that was there. */
#define _rcu_cmpxchg_pointer(p, old, _new)                                                   \
    STILL_CMPXCHG_(p, old, _new, STILL_NUMBERED_(still_found_, __COUNTER__), STILL_NUMBERED_(still_stored_, __COUNTER__))
#define STILL_CMPXCHG_(p, old, _new, found, stored)                                          \
    __extension__({                                                                          \
        __typeof__(*(p)) found = (old);                                                      \
        __typeof__(*(p)) stored = (_new);                                                    \
        __atomic_compare_exchange_n((p), &found, stored, 0, __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST); \
        (found);                                                                             \
    })

#define _rcu_assign_pointer(p, v) _rcu_set_pointer(&(p), v)

#ifdef __cplusplus
extern "C" {
#endif

/* The same as functions on untyped pointers, under liburcu's names. */
static inline void *rcu_dereference_sym(void *p) { return _rcu_dereference(p); }
static inline void *rcu_set_pointer_sym(void **p, void *v)
{
    _rcu_set_pointer(p, v);
    return v;
}
static inline void *rcu_xchg_pointer_sym(void **p, void *v) { return _rcu_xchg_pointer(p, v); }
static inline void *rcu_cmpxchg_pointer_sym(void **p, void *old, void *_new) { return _rcu_cmpxchg_pointer(p, old, _new); }

#ifdef __cplusplus
}
#endif

#endif
