/* The most used parts of liburcu's other headers, for machines on which liburcu is not installed. */
#ifndef STILLPOINT_URCU_ALONE_H
#define STILLPOINT_URCU_ALONE_H

#include <stddef.h>

#define caa_likely(x) __builtin_expect(!!(x), 1)
#define caa_unlikely(x) __builtin_expect(!!(x), 0)

#define caa_container_of(ptr, type, member)                                                  \
    __extension__({                                                                          \
        const __typeof__(((type *)NULL)->member) *still_member_ = (ptr);                     \
        ((type *)((char *)still_member_ - offsetof(type, member)));                          \
    })

#define cmm_barrier() __asm__ __volatile__("" : : : "memory")
#define cmm_smp_mb() __atomic_thread_fence(__ATOMIC_SEQ_CST)
#define cmm_smp_rmb() __atomic_thread_fence(__ATOMIC_ACQUIRE)
#define cmm_smp_wmb() __atomic_thread_fence(__ATOMIC_RELEASE)

#define CMM_ACCESS_ONCE(x) (*(__volatile__ __typeof__(x) *)&(x))
#define CMM_LOAD_SHARED(x) __atomic_load_n(&(x), __ATOMIC_RELAXED)
#define CMM_STORE_SHARED(x, v) __atomic_store_n(&(x), (v), __ATOMIC_RELAXED)

#define uatomic_read(address) __atomic_load_n((address), __ATOMIC_RELAXED)
#define uatomic_set(address, v) __atomic_store_n((address), (v), __ATOMIC_RELAXED)
#define uatomic_xchg(address, v) __atomic_exchange_n((address), (v), __ATOMIC_SEQ_CST)
#define uatomic_add(address, v) ((void)__atomic_fetch_add((address), (v), __ATOMIC_RELAXED))
#define uatomic_sub(address, v) ((void)__atomic_fetch_sub((address), (v), __ATOMIC_RELAXED))
#define uatomic_inc(address) uatomic_add((address), 1)
#define uatomic_dec(address) uatomic_sub((address), 1)
#define uatomic_add_return(address, v) __atomic_add_fetch((address), (v), __ATOMIC_SEQ_CST)
#define uatomic_sub_return(address, v) __atomic_sub_fetch((address), (v), __ATOMIC_SEQ_CST)
#define uatomic_cmpxchg(address, old, _new)                                                  \
    __extension__({                                                                          \
        __typeof__(*(address)) still_found_ = (old);                                         \
        __atomic_compare_exchange_n((address), &still_found_, (_new), 0, __ATOMIC_SEQ_CST,   \
                                    __ATOMIC_SEQ_CST);                                       \
        (still_found_);                                                                      \
    })

#endif
