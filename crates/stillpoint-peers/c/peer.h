/*
 * What the peers written in C share with the Rust side: the layout of the data, and the loop of a reader.
 *
 * The readers' loops are in C so that the inline functions of the peers' headers are inlined into them, as in a user's program. Words
 * that both sides access while threads run are C11 atomics here, and atomics of the same size in Rust.
 */
#ifndef STILLPOINT_PEER_H
#define STILLPOINT_PEER_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

/* `Element` in src/element.rs, which asserts the same offsets. */
struct element {
    uint64_t key;
    _Atomic uint64_t value;
    _Atomic uint64_t unlinked_at;
    const void *delays;
    void *head[2];
    void *body[2];
} __attribute__((aligned(64)));

_Static_assert(sizeof(struct element) == 64, "an element is one cache line");
_Static_assert(offsetof(struct element, value) == 8, "the layout of Element");
_Static_assert(offsetof(struct element, head) == 32, "the layout of Element");

/* `RawJob` in src/native/mod.rs. For all contenders, the work inside a section and between two sections is in Rust. */
struct read_job {
    const _Atomic(struct element *) *slots;
    uint64_t mask;
    uint64_t seed;
    const _Atomic bool *stop;
    const void *work;
    /* NULL if the reader only looks up. */
    bool (*inside)(const void *work, const struct element *element, uint64_t index);
    /* NULL if there is no work between two sections. */
    void (*rest)(const void *work);
};

/* `ReadOutcome` in src/contender.rs. */
struct read_outcome {
    uint64_t lookups;
    uint64_t mismatches;
};

static inline uint64_t next_random(uint64_t *state)
{
    *state ^= *state << 13;
    *state ^= *state >> 7;
    *state ^= *state << 17;
    return *state;
}

/* Whether the element has this key and is alive: `Element::holds` in Rust. */
static inline bool holds(const struct element *element, uint64_t key)
{
    return element->key == key && atomic_load_explicit(&element->value, memory_order_relaxed) == key;
}

/* Whether the element in the slot `index` belongs there and is alive. */
static inline bool look_up(const _Atomic(struct element *) *slots, uint64_t index)
{
    /* Acquire pairs with the release half of the swap in `Slots::replace`. */
    return holds(atomic_load_explicit(&slots[index], memory_order_acquire), index);
}

/* The same for the result of a table. A missing key is no mismatch: the writer may have removed it just now. */
static inline bool is_right_or_away(const struct element *element, uint64_t index)
{
    return element == NULL || holds(element, index);
}

/*
 * The loop of every reader: `read_loop` in src/lookup.rs is the same in Rust. Until it has to stop, it takes a random key `index_`, and
 * runs ENTER, RIGHT and LEAVE. RIGHT looks up the key and is true if the result is right.
 *
 * If sections have work, it runs that with the result of FIND in place of RIGHT, and there is at least one section. If there is work between
 * two sections, it runs AWAY, that work, and BACK: AWAY takes the thread offline, and BACK brings it back online, in schemes that know this.
 */
#define READ_LOOP(job, outcome, RIGHT, FIND, ENTER, LEAVE, AWAY, BACK)                                  \
    do {                                                                                                \
        struct read_outcome outcome_ = {0, 0};                                                          \
        uint64_t state_ = (job)->seed;                                                                  \
                                                                                                        \
        /*                                                                                              \
         * Copies, as the compiler may keep these in registers. Each loop has its own, and the barriers \
         * keep it from sharing them: else the registers run out, and the short loop reads memory.      \
         */                                                                                             \
        if ((job)->inside == NULL) {                                                                    \
            __asm__ volatile("" ::: "memory");                                                          \
            const struct read_job job_ = *(job);                                                        \
                                                                                                        \
            /* Relaxed: the flag carries no data. */                                                    \
            while (!atomic_load_explicit(job_.stop, memory_order_relaxed)) {                            \
                uint64_t index_ = next_random(&state_) & job_.mask;                                     \
                                                                                                        \
                ENTER;                                                                                  \
                outcome_.mismatches += !(RIGHT);                                                        \
                LEAVE;                                                                                  \
                outcome_.lookups++;                                                                     \
            }                                                                                           \
        } else {                                                                                        \
            __asm__ volatile("" ::: "memory");                                                          \
            const struct read_job job_ = *(job);                                                        \
                                                                                                        \
            do {                                                                                        \
                uint64_t index_ = next_random(&state_) & job_.mask;                                     \
                                                                                                        \
                ENTER;                                                                                  \
                outcome_.mismatches += !job_.inside(job_.work, FIND, index_);                           \
                LEAVE;                                                                                  \
                outcome_.lookups++;                                                                     \
                if (job_.rest != NULL) {                                                                \
                    AWAY;                                                                               \
                    job_.rest(job_.work);                                                               \
                    BACK;                                                                               \
                }                                                                                       \
                /* Relaxed: as above. */                                                                \
            } while (!atomic_load_explicit(job_.stop, memory_order_relaxed));                           \
        }                                                                                               \
        *(outcome) = outcome_;                                                                          \
    } while (0)

/* The loop over an array. Acquire pairs with the release half of the swap in `Slots::publish`. */
#define READ_SLOTS(job, outcome, ENTER, LEAVE, AWAY, BACK)                                 \
    READ_LOOP(job, outcome, look_up(job_.slots, index_),                                   \
              atomic_load_explicit(&job_.slots[index_], memory_order_acquire),             \
              ENTER, LEAVE, AWAY, BACK)

/* The same over a table, in which FIND finds the element of a key, or NULL. */
#define READ_TABLE(job, outcome, FIND, ENTER, LEAVE, AWAY, BACK)                           \
    READ_LOOP(job, outcome, is_right_or_away(FIND, index_), FIND, ENTER, LEAVE, AWAY, BACK)

/* Runs OPERATION `iterations` times. The barrier keeps the compiler from merging or hoisting operations. */
#define REPEAT(iterations, OPERATION)                                                      \
    for (uint64_t i_ = 0; i_ < (iterations); i_++) {                                       \
        OPERATION;                                                                         \
        __asm__ volatile("" ::: "memory");                                                 \
    }

/* Runs OPERATION until it has to stop. Release pairs with the acquire of the thread that waits for the beginning; relaxed: no data. */
#define UNTIL(stop, begun, OPERATION)                                                      \
    do {                                                                                   \
        atomic_store_explicit(begun, true, memory_order_release);                          \
        while (!atomic_load_explicit(stop, memory_order_relaxed)) {                        \
            OPERATION;                                                                     \
            __asm__ volatile("" ::: "memory");                                             \
        }                                                                                  \
    } while (0)

/* How many objects are retired between two polls: the batch of every peer in the micro benchmark. */
enum { RETIRED_TOGETHER = 64 };

/* A new object of the micro benchmark: 64 bytes for every peer, all written. */
static inline void *new_object(uint64_t number)
{
    uint64_t *object = malloc(64);

    if (object == NULL) {
        fputs("out of memory: the micro benchmark needed 64 bytes for one object\n", stderr);
        abort();
    }
    for (int word = 0; word < 8; word++)
        object[word] = number;
    return object;
}

/* Links a new object, or nothing, and returns the object that was linked before. */
static inline void *exchange_object(_Atomic(void *) *shared, void *object)
{
    /* Release publishes the object to readers; acquire receives the old one from the thread that linked it. */
    return atomic_exchange_explicit(shared, object, memory_order_acq_rel);
}

#endif
