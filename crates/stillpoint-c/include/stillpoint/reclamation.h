/* SPDX-License-Identifier: MIT OR Apache-2.0
 *
 * The functions of the library that stillpoint/rcu.hpp and stillpoint/hazard_pointer.hpp call. Not for programs: any version may change
 * them. */
#ifndef STILLPOINT_RECLAMATION_H
#define STILLPOINT_RECLAMATION_H

#include <stdint.h>

#include "thread.h"

#if UINTPTR_MAX != UINT64_MAX || !defined(__linux__)
#error "stillpoint is for 64-bit Linux"
#endif

#ifdef __cplusplus
extern "C" {
#define STILL_RECLAMATION_NOEXCEPT_ noexcept
#else
#define STILL_RECLAMATION_NOEXCEPT_
#endif

/* The version of the layout that the inline functions rely on. The library ends a program that passes another number; recompile such a
 * program. */
#define STILL_RECLAMATION_LAYOUT_ 2u
#define STILL_RCU_STATE_ 0
#define STILL_RCU_ATTENTION_ 8
#define STILL_RCU_FULL_FENCE_ 1u
/* In a state outside regions: the rest is the token for which the reader vouches. */
#define STILL_RCU_IDLE_ 0x8000000000000000u
/* The bytes from the state of a record to its hazard slot. */
#define STILL_RCU_HAZARD_ 56

struct still_domain;

/* Makes the calling thread a reader until the thread ends. Returns what it has from now on. */
struct still_rcu_thread_ *still_rcu_begin_(uint32_t layout) STILL_RECLAMATION_NOEXCEPT_;
/* Begins a region of a reader that was away. */
void still_rcu_enter_(struct still_rcu_thread_ *self) STILL_RECLAMATION_NOEXCEPT_;
void still_rcu_answer_(struct still_rcu_thread_ *self) STILL_RECLAMATION_NOEXCEPT_;
void still_rcu_synchronize_(void) STILL_RECLAMATION_NOEXCEPT_;
void still_rcu_barrier_(void) STILL_RECLAMATION_NOEXCEPT_;
/* `node`: two words, which belong to the queue until `function` is called. */
void still_rcu_retire_(void *node, void (*function)(void *) STILL_RECLAMATION_NOEXCEPT_) STILL_RECLAMATION_NOEXCEPT_;
struct still_domain *still_rcu_domain_(void) STILL_RECLAMATION_NOEXCEPT_;

/* A hazard slot, and the address of the domain's token; plus 1 if its user has to issue full fences. */
struct still_hazard_ {
    void **slot;
    uintptr_t token;
};

struct still_hazard_ still_hazard_make_(uint32_t layout) STILL_RECLAMATION_NOEXCEPT_;
void still_hazard_free_(void **slot) STILL_RECLAMATION_NOEXCEPT_;
/* `node`: three words, which belong to the queue until `function` is called. */
void still_hazard_retire_(void *node, const void *object,
                          void (*function)(void *) STILL_RECLAMATION_NOEXCEPT_) STILL_RECLAMATION_NOEXCEPT_;
void still_hazard_clean_up_(void) STILL_RECLAMATION_NOEXCEPT_;
struct still_domain *still_hazard_domain_(void) STILL_RECLAMATION_NOEXCEPT_;

#ifdef __cplusplus
}

#include <cstddef>
#include <type_traits>
#include <utility>

#ifdef STILL_CHECKED
#include <cstdio>
#include <cstdlib>
#endif

namespace stillpoint::detail {

/* GCC warns that ThreadSanitizer does not know fences. The library tells ThreadSanitizer what this fence orders. */
#if defined(__SANITIZE_THREAD__) && !defined(__clang__) && __GNUC__ >= 11
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wtsan"
#endif

/* Orders a reader's store before its later loads. Pairs with the heavy fence of the thread that waits or reclaims. */
inline void reader_fence(bool is_full) noexcept
{
    if (__builtin_expect(is_full, 0))
        __atomic_thread_fence(__ATOMIC_SEQ_CST);
    else
        __atomic_signal_fence(__ATOMIC_SEQ_CST);
}

#if defined(__SANITIZE_THREAD__) && !defined(__clang__) && __GNUC__ >= 11
#pragma GCC diagnostic pop
#endif

/* Whether a region may begin at once: none is open, and the reader is not away, and not on its way back. The states of regions are positive,
 * that of a reader that is away is -1, and one that comes back has the least number. */
inline bool is_here(uint64_t state) noexcept
{
    return static_cast<int64_t>(state - 1) < -2;
}

#ifdef STILL_CHECKED
/* Words for a queue, which are not copied. The second word, a function, is not NULL while the words are in the queue. */
template <std::size_t Words>
struct queue_words {
    void *at[Words] = {};

    queue_words() = default;
    queue_words(const queue_words &) noexcept {}

    queue_words &operator=(const queue_words &other) noexcept
    {
        if (&other != this)
            must_be_outside("an object was assigned to after it was retired");
        return *this;
    }

    void must_be_outside(const char *what) const noexcept
    {
        if (at[1] != nullptr) {
            std::fprintf(stderr, "stillpoint: %s\n", what);
            std::abort();
        }
    }
};
#else
/* Words for a queue. They are trivially copyable, as the standard requires. */
template <std::size_t Words>
struct queue_words {
    void *at[Words] = {};
};
#endif

/* Words for a queue, which come first, and a deleter, which takes no room if its class is empty. */
template <class D, std::size_t Words, bool = std::is_empty_v<D> && !std::is_final_v<D>>
struct retirable : D {
    queue_words<Words> words = {};

    D &deleter() noexcept { return *this; }
};

template <class D, std::size_t Words>
struct retirable<D, Words, false> {
    queue_words<Words> words = {};
    D stored = D();

    D &deleter() noexcept { return stored; }
};

/* Called before the words go to a queue. */
template <class D, std::size_t Words>
void begin_retirement(const retirable<D, Words> &node) noexcept
{
#ifdef STILL_CHECKED
    node.words.must_be_outside("an object was retired twice");
#else
    static_cast<void>(node);
#endif
}

/* Calls the deleter of an object. The deleter may lie in the object. The queue no longer uses the words. */
template <class T, class D, std::size_t Words>
void reclaim(retirable<D, Words> &node, T *object) noexcept
{
#ifdef STILL_CHECKED
    node.words.at[1] = nullptr;
#endif
    D &deleter = node.deleter();
    if constexpr (std::is_move_constructible_v<D>) {
        D moved(std::move(deleter));
        moved(object);
    } else {
        deleter(object);
    }
}

/* Whether T has exactly one base that is a B, and it is B<T, D> for some D, public and not virtual. */
template <template <class, class> class B, class T>
struct protectable {
    template <class X, class D>
    static B<X, D> only(const B<X, D> *);

    template <class X, class D>
    static std::is_same<X, T> is_own(const B<X, D> *);

    template <class U, class Base = decltype(only(static_cast<U *>(nullptr))),
              class = decltype(static_cast<U *>(static_cast<Base *>(nullptr)))>
    static decltype(is_own(static_cast<U *>(nullptr))) test(int);

    template <class>
    static std::false_type test(...);

    static constexpr bool value = decltype(test<T>(0))::value;
};

} // namespace stillpoint::detail
#endif

#endif
