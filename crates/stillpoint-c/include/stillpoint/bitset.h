/* SPDX-License-Identifier: MIT OR Apache-2.0
 *
 * bitset.h: sets of small numbers in an array of 64-bit words, which the program allocates. Everything is inline, and searches go by words.
 *
 *     uint64_t ports[STILL_BITSET_WORDS(1024)];
 *     still_bitset_init(ports, 1024);
 *     still_bitset_set(ports, 443);
 *     for (size_t port = 0; (port = still_bitset_find(ports, 1024, port)) < 1024; port++)
 *         ...
 *
 * A set is for one thread at a time. `size` is how many numbers it can have, 0 to size - 1; the bits of its last word beyond are 0 if
 * still_bitset_init made it, and stay 0. Numbers must be below the size, except `from` of a search, which may be the size; ranges must end
 * at or before it.
 *
 * C99 or C++11; GCC or Clang.
 */
#ifndef STILLPOINT_BITSET_H
#define STILLPOINT_BITSET_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* How many words a set of this size has. */
#define STILL_BITSET_WORDS(size) (((size_t)(size) + 63) / 64)

/* The bits of a word from number `from`, below 64, on. */
static inline uint64_t still_bitset_from_(size_t from)
{
    return ~UINT64_C(0) << from;
}

/* Empties the set. */
static inline void still_bitset_init(uint64_t *set, size_t size)
{
    for (size_t word = 0; word < STILL_BITSET_WORDS(size); word++)
        set[word] = 0;
}

static inline bool still_bitset_test(const uint64_t *set, size_t number)
{
    return set[number / 64] >> (number % 64) & 1;
}

static inline void still_bitset_set(uint64_t *set, size_t number)
{
    set[number / 64] |= UINT64_C(1) << (number % 64);
}

static inline void still_bitset_clear(uint64_t *set, size_t number)
{
    set[number / 64] &= ~(UINT64_C(1) << (number % 64));
}

static inline void still_bitset_flip(uint64_t *set, size_t number)
{
    set[number / 64] ^= UINT64_C(1) << (number % 64);
}

static inline void still_bitset_assign(uint64_t *set, size_t number, bool value)
{
    if (value)
        still_bitset_set(set, number);
    else
        still_bitset_clear(set, number);
}

/* The bits of word `word` that lie in the range from `from` to `to` - 1, which is not empty. */
static inline uint64_t still_bitset_within_(size_t word, size_t from, size_t to)
{
    uint64_t bits = ~UINT64_C(0);
    if (word == from / 64)
        bits &= still_bitset_from_(from % 64);
    if (word == (to - 1) / 64)
        bits &= ~UINT64_C(0) >> (63 - (to - 1) % 64);
    return bits;
}

/* The functions with `_range` are for the numbers from `from` to `to` - 1. */
static inline void still_bitset_set_range(uint64_t *set, size_t from, size_t to)
{
    for (size_t word = from / 64; from < to && word <= (to - 1) / 64; word++)
        set[word] |= still_bitset_within_(word, from, to);
}

static inline void still_bitset_clear_range(uint64_t *set, size_t from, size_t to)
{
    for (size_t word = from / 64; from < to && word <= (to - 1) / 64; word++)
        set[word] &= ~still_bitset_within_(word, from, to);
}

static inline void still_bitset_flip_range(uint64_t *set, size_t from, size_t to)
{
    for (size_t word = from / 64; from < to && word <= (to - 1) / 64; word++)
        set[word] ^= still_bitset_within_(word, from, to);
}

/* How many numbers of a range are in the set. */
static inline size_t still_bitset_count_range(const uint64_t *set, size_t from, size_t to)
{
    size_t count = 0;
    for (size_t word = from / 64; from < to && word <= (to - 1) / 64; word++)
        count += (size_t)__builtin_popcountll(set[word] & still_bitset_within_(word, from, to));
    return count;
}

/* How many numbers are in the set. */
static inline size_t still_bitset_count(const uint64_t *set, size_t size)
{
    return still_bitset_count_range(set, 0, size);
}

/* For the functions below: finds, in the words of the set or, with `flip` of ~0, in their complements. */
static inline size_t still_bitset_find_(const uint64_t *set, size_t from, size_t to, uint64_t flip)
{
    for (size_t word = from / 64; from < to && word <= (to - 1) / 64; word++) {
        uint64_t bits = (set[word] ^ flip) & still_bitset_within_(word, from, to);
        if (bits != 0)
            return word * 64 + (size_t)__builtin_ctzll(bits);
    }
    return to;
}

/* The first number of a range that is in the set; `to` if there is none. */
static inline size_t still_bitset_find_range(const uint64_t *set, size_t from, size_t to)
{
    return still_bitset_find_(set, from, to, 0);
}

/* The first number from `from` on that is in the set; `size` if there is none. */
static inline size_t still_bitset_find(const uint64_t *set, size_t size, size_t from)
{
    return still_bitset_find_(set, from, size, 0);
}

/* The first number from `from` on that is not in the set; `size` if there is none. */
static inline size_t still_bitset_find_clear(const uint64_t *set, size_t size, size_t from)
{
    return still_bitset_find_(set, from, size, ~UINT64_C(0));
}

/* As still_bitset_find, and after the last number goes on at 0. */
static inline size_t still_bitset_find_wrap(const uint64_t *set, size_t size, size_t from)
{
    size_t found = still_bitset_find_(set, from, size, 0);
    if (found < size || from == 0)
        return found;
    found = still_bitset_find_(set, 0, from < size ? from : size, 0);
    return found < from ? found : size;
}

/* As still_bitset_find_clear, and after the last number goes on at 0. */
static inline size_t still_bitset_find_clear_wrap(const uint64_t *set, size_t size, size_t from)
{
    size_t found = still_bitset_find_(set, from, size, ~UINT64_C(0));
    if (found < size || from == 0)
        return found;
    found = still_bitset_find_(set, 0, from < size ? from : size, ~UINT64_C(0));
    return found < from ? found : size;
}

#ifdef __cplusplus
}
#endif

#endif
