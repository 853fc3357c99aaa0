/*
 * rte_timer: DPDK's, or stillpoint's if DROP_IN is defined. Only the thread that initialised the environment abstraction layer fires
 * timers, all from the list of its lcore.
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

/* Allocates `number` timers that are not pending. Returns NULL if there is no memory. */
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

/* None of the timers may be pending. */
void NAME(free)(struct rte_timer *timers)
{
    free(timers);
}

/* Arms timer i, pending or not, to fire after delays[i] cycles. Returns how many timers were armed. */
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

/* As `reset`, for the list of `lcore`, which may be another thread's. */
size_t NAME(reset_on)(struct rte_timer *timers, const uint64_t *delays, size_t number, unsigned lcore)
{
    size_t done = 0;

    for (size_t i = 0; i < number; i++)
        done += rte_timer_reset(&timers[i], delays[i], SINGLE, lcore, count, (void *)1) == 0;
    return done;
}

/* Stops the timers in this order. Returns how many of them were pending. */
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

/* Calls rte_timer_manage `times` times. Returns how many timers have fired. */
uint64_t NAME(manage)(size_t times)
{
    uint64_t before = fired;

    for (size_t i = 0; i < times; i++)
        (void)rte_timer_manage();
    return fired - before;
}

/* Where `collect` writes the number of the next timer that fires. */
static uint32_t *expired;

static void collect(struct rte_timer *timer, void *argument)
{
    (void)timer;
    *expired++ = (uint32_t)(uintptr_t)argument;
}

/* Arms the timers with the numbers in `which`, each to fire after `delay` cycles. Returns how many timers were armed. */
size_t NAME(touch)(struct rte_timer *timers, const uint32_t *which, size_t number, uint64_t delay)
{
    unsigned lcore = rte_lcore_id();
    size_t done = 0;

    for (size_t i = 0; i < number; i++)
        done += rte_timer_reset(&timers[which[i]], delay, SINGLE, lcore, collect, (void *)(uintptr_t)which[i]) == 0;
    return done;
}

/* Fires the timers that were armed by `touch` and are due, and writes their numbers to `numbers`, which must have room for all of them.
 * Returns how many fired. */
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

/* Spins until more than `cycles` cycles have passed. */
void NAME(wait)(uint64_t cycles)
{
    uint64_t begin = rte_get_timer_cycles();

    while (rte_get_timer_cycles() - begin <= cycles)
        rte_pause();
}
