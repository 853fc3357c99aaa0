/* <urcu/pointer.h> as inline code: an acquire load, a release store, and exchanges that are both. */
#ifndef STILLPOINT_URCU_STATIC_POINTER_H
#define STILLPOINT_URCU_STATIC_POINTER_H

#include <stddef.h>

/* The pointer in the variable p. */
#define _rcu_dereference(p)                                                                  \
    __extension__({                                                                          \
        __typeof__(p) still_loaded_ = __atomic_load_n(&(p), __ATOMIC_ACQUIRE);               \
        (still_loaded_);                                                                     \
    })

/* Stores v at the address p. */
#define _rcu_set_pointer(p, v)                                                               \
    do {                                                                                     \
        __typeof__(*(p)) still_stored_ = (v);                                                \
        __atomic_store_n((p), still_stored_, __ATOMIC_RELEASE);                              \
    } while (0)

/* Stores v at the address p, and returns the old pointer. */
#define _rcu_xchg_pointer(p, v)                                                              \
    __extension__({                                                                          \
        __typeof__(*(p)) still_stored_ = (v);                                                \
        __atomic_exchange_n((p), still_stored_, __ATOMIC_SEQ_CST);                           \
    })

/* Stores _new at the address p if old is there, and returns the pointer that was there. */
#define _rcu_cmpxchg_pointer(p, old, _new)                                                   \
    __extension__({                                                                          \
        __typeof__(*(p)) still_found_ = (old);                                               \
        __typeof__(*(p)) still_stored_ = (_new);                                             \
        __atomic_compare_exchange_n((p), &still_found_, still_stored_, 0, __ATOMIC_SEQ_CST,  \
                                    __ATOMIC_SEQ_CST);                                       \
        (still_found_);                                                                      \
    })

#define _rcu_assign_pointer(p, v) _rcu_set_pointer(&(p), v)

#endif
