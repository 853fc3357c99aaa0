/*
 * rte_timer, DPDK's or ours, with one list of its own: that of the thread that has initialised the environment abstraction layer.
 */
#include <rte_config.h>

#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>

#include <rte_cycles.h>
#include <rte_lcore.h>
#include <rte_timer.h>

#include "peer.h"

#ifdef DROP_IN
#define NAME(function) stillpoint_drop_in_timers_##function
#else
#define NAME(function) stillpoint_timers_##function
#endif

static uint64_t fired;

static void count(struct rte_timer *timer, void *argument)
{
    (void)timer;
    fired += (uintptr_t)argument;
}

/* `count` timers at rest, or NULL. */
struct rte_timer *NAME(new)(size_t number)
{
    static bool ready;
    struct rte_timer *timers;

    if (!ready && rte_timer_subsystem_init() != 0)
        return NULL;
    ready = true;
    timers = calloc(number, sizeof *timers);
    for (size_t i = 0; timers != NULL && i < number; i++)
        rte_timer_init(&timers[i]);
    return timers;
}

/* None of them may be pending. */
void NAME(free)(struct rte_timer *timers)
{
    free(timers);
}

/* Arms the timers, pending or not, to fire after so many cycles; the number of those that could be. */
size_t NAME(reset)(struct rte_timer *timers, const uint64_t *delays, size_t number)
{
    unsigned lcore = rte_lcore_id();
    size_t done = 0;

    for (size_t i = 0; i < number; i++)
        done += rte_timer_reset(&timers[i], delays[i], SINGLE, lcore, count, (void *)1) == 0;
    return done;
}

/* The calling thread's lcore. */
unsigned NAME(lcore)(void)
{
    return rte_lcore_id();
}

/* As `reset`, for timers of an lcore that may be another thread's. */
size_t NAME(reset_on)(struct rte_timer *timers, const uint64_t *delays, size_t number, unsigned lcore)
{
    size_t done = 0;

    for (size_t i = 0; i < number; i++)
        done += rte_timer_reset(&timers[i], delays[i], SINGLE, lcore, count, (void *)1) == 0;
    return done;
}

/* Stops timers in this order; the number of those that were pending. */
size_t NAME(stop)(struct rte_timer *timers, const uint32_t *order, size_t number)
{
    size_t done = 0;

    for (size_t i = 0; i < number; i++) {
        struct rte_timer *timer = &timers[order[i]];
        bool pending = rte_timer_pending(timer) != 0;

        done += rte_timer_stop(timer) == 0 && pending;
    }
    return done;
}

/* The number of timers that have fired. */
uint64_t NAME(manage)(size_t times)
{
    uint64_t before = fired;

    for (size_t i = 0; i < times; i++)
        (void)rte_timer_manage();
    return fired - before;
}

/* Where the numbers of timers that fire are put. */
static uint32_t *expired;

static void collect(struct rte_timer *timer, void *argument)
{
    (void)timer;
    *expired++ = (uint32_t)(uintptr_t)argument;
}

/* Arms the timers of these numbers, each to fire after so many cycles; the number of those that could be. */
size_t NAME(touch)(struct rte_timer *timers, const uint32_t *which, size_t number, uint64_t delay)
{
    unsigned lcore = rte_lcore_id();
    size_t done = 0;

    for (size_t i = 0; i < number; i++)
        done += rte_timer_reset(&timers[which[i]], delay, SINGLE, lcore, collect, (void *)(uintptr_t)which[i]) == 0;
    return done;
}

/* Fires what is due of those; the number of timers, of which there must be room for all. */
size_t NAME(collect)(uint32_t *numbers)
{
    expired = numbers;
    (void)rte_timer_manage();
    return (size_t)(expired - numbers);
}

uint64_t NAME(cycles)(void)
{
    return rte_get_timer_cycles();
}

uint64_t NAME(hertz)(void)
{
    return rte_get_timer_hz();
}

/* Waits until so many cycles have passed. */
void NAME(wait)(uint64_t cycles)
{
    uint64_t begin = rte_get_timer_cycles();

    while (rte_get_timer_cycles() - begin <= cycles)
        rte_pause();
}
