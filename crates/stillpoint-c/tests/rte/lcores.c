/* Tests of timers on the lcores of DPDK's environment. */
#define ALLOW_EXPERIMENTAL_API
#include <rte_timer.h>

#include <rte_eal.h>
#include <rte_launch.h>

#include "check.h"

enum { LCORES = 4, TIMERS = 400, BEATS = 20 };

static struct rte_timer timers[TIMERS], beats[LCORES];
static unsigned int fired[LCORES], beaten, ready;

static void count(struct rte_timer *timer, void *argument)
{
    (void)argument;
    CHECK(timer->status.owner == (int16_t)rte_lcore_id() && rte_lcore_id() < LCORES);
    COUNT(fired[rte_lcore_id()]);
}

static void beat(struct rte_timer *timer, void *argument)
{
    CHECK(argument == (void *)&beats[rte_lcore_id()] && timer == argument);
    if (++fired[rte_lcore_id()] == BEATS) {
        CHECK(rte_timer_stop(timer) == 0);
        memset((void *)timer, 0xaa, sizeof *timer);
        COUNT(beaten);
    }
}

static int serve(void *unused)
{
    (void)unused;
    COUNT(ready);
    while (LOAD(beaten) < LCORES) {
        CHECK(rte_timer_manage() == 0);
        sched_yield();
    }
    return 0;
}

int main(void)
{
    char program[] = "lcores", huge[] = "--no-huge", pci[] = "--no-pci", memory[] = "-m", megabytes[] = "64",
         shared[] = "--no-shconf", telemetry[] = "--no-telemetry", cores[] = "--lcores", sets[] = "(0-3)@0";
    char *arguments[] = { program, huge, pci, memory, megabytes, shared, telemetry, cores, sets, NULL };
    CHECK(rte_eal_init(9, arguments) >= 0);
    CHECK(rte_timer_subsystem_init() == 0);
    unsigned int lcore;
    CHECK(rte_eal_mp_remote_launch(serve, NULL, SKIP_MAIN) == 0);
    UNTIL(LOAD(ready) == LCORES - 1);

    /* Each lcore gets timers in turn, due within hundredths of a second. The timers of the other lcores fire without this thread. */
    for (int at = 0; at < TIMERS; at++) {
        rte_timer_init(&timers[at]);
        CHECK(rte_timer_reset(&timers[at], rte_get_timer_hz() / 100000 * (uint64_t)at, SINGLE, LCORE_ID_ANY, count, NULL) == 0);
    }
    for (lcore = 1; lcore < LCORES; lcore++)
        UNTIL(LOAD(fired[lcore]) == TIMERS / LCORES);
    UNTIL(rte_timer_manage() == 0 && LOAD(fired[0]) == TIMERS / LCORES);

    for (lcore = 0; lcore < LCORES; lcore++) {
        STORE(fired[lcore], 0);
        rte_timer_init(&beats[lcore]);
        CHECK(rte_timer_reset(&beats[lcore], rte_get_timer_hz() / 10000, PERIODICAL, lcore, beat, &beats[lcore]) == 0);
    }
    CHECK(serve(NULL) == 0);
    rte_eal_mp_wait_lcore();
    rte_timer_subsystem_finalize();
    CHECK(rte_eal_cleanup() == 0);
    return 0;
}
