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

/* Operations that return a value are full barriers, as in liburcu. A seq_cst operation is one by itself on x86 only. */
#ifdef __x86_64__
#define STILL_WHOLE_(operation) (operation)
#else
#define STILL_WHOLE_(operation)                                                              \
    __extension__({                                                                          \
        cmm_smp_mb();                                                                        \
        __typeof__(operation) still_whole_ = (operation);                                    \
        cmm_smp_mb();                                                                        \
        still_whole_;                                                                        \
    })
#endif

#define uatomic_read(address) __atomic_load_n((address), __ATOMIC_RELAXED)
#define uatomic_set(address, v) __atomic_store_n((address), (v), __ATOMIC_RELAXED)
#define uatomic_xchg(address, v) STILL_WHOLE_(__atomic_exchange_n((address), (v), __ATOMIC_SEQ_CST))
#define uatomic_add(address, v) ((void)__atomic_fetch_add((address), (v), __ATOMIC_RELAXED))
#define uatomic_sub(address, v) ((void)__atomic_fetch_sub((address), (v), __ATOMIC_RELAXED))
#define uatomic_inc(address) uatomic_add((address), 1)
#define uatomic_dec(address) uatomic_sub((address), 1)
#define uatomic_add_return(address, v) STILL_WHOLE_(__atomic_add_fetch((address), (v), __ATOMIC_SEQ_CST))
#define uatomic_sub_return(address, v) STILL_WHOLE_(__atomic_sub_fetch((address), (v), __ATOMIC_SEQ_CST))
#define uatomic_cmpxchg(address, old, _new)                                                  \
    __extension__({                                                                          \
        __typeof__(*(address)) still_found_ = (old);                                         \
        (void)STILL_WHOLE_(__atomic_compare_exchange_n((address), &still_found_, (_new), 0,  \
                                                       __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST)); \
        (still_found_);                                                                      \
    })

#endif
