/* Timers with functions on the lcores of DPDK's environment, and on a thread that is registered with it. */
#define ALLOW_EXPERIMENTAL_API
#include <rte_cycles.h>
#include <rte_eal.h>
#include <rte_launch.h>
#include <rte_lcore.h>

#include "check.h"
#include "stillpoint/htimer.h"

enum { LCORES = 4, TIMERS = 300 };

static struct still_htimer timers[LCORES][TIMERS], late[LCORES];
static unsigned int fired[LCORES + 1], told[LCORES + 1], ready, over, registered;

static void count(struct still_htimer *timer, void *argument)
{
    /* On the lcore that was asked. */
    CHECK((uintptr_t)argument == rte_lcore_id() && still_htimer_state(timer) == STILL_HTIMER_EXPIRED);
    COUNT(fired[rte_lcore_id()]);
}

static void tell(struct still_htimer *timer, int result, void *argument)
{
    (void)timer;
    CHECK((uintptr_t)argument == rte_lcore_id() && result == STILL_HTIMER_ADDED);
    COUNT(told[rte_lcore_id()]);
}

/* Each lcore gives the next one its timers, in cycles, and serves what it gets. */
static int serve(void *unused)
{
    (void)unused;
    unsigned int me = rte_lcore_id();
    struct still_htimer_options options = STILL_HTIMER_OPTIONS_INIT;
    options.requests = 32;
    CHECK(still_htimer_start(&options) == 0);
    CHECK(still_htimer_mgr_of_lcore(me) == still_htimer_mgr_self());
    COUNT(ready);
    UNTIL(LOAD(ready) == LCORES);
    unsigned int next = (me + 1) % LCORES;
    struct still_htimer_mgr *target = still_htimer_mgr_of_lcore(next);
    CHECK(target != NULL);
    for (uint64_t i = 0; i < TIMERS; i++)
        for (;;) {
            int answer = still_htimer_async_add(target, &timers[me][i], rte_get_tsc_hz() / 100000 * i, 0, count,
                                                (void *)(uintptr_t)next, STILL_HTIMER_TSC, tell, (void *)(uintptr_t)me);
            if (answer == 0)
                break;
            /* Where the processor has no counter of constant speed, in nanoseconds. */
            if (answer == -EOPNOTSUPP) {
                answer = still_htimer_async_add(target, &timers[me][i], 10000 * i, 0, count, (void *)(uintptr_t)next, 0, tell,
                                                (void *)(uintptr_t)me);
                if (answer == 0)
                    break;
            }
            CHECK(answer == -EAGAIN && still_htimer_manage() >= 0);
            sched_yield();
        }
    while (LOAD(fired[me]) < TIMERS || LOAD(told[me]) < TIMERS) {
        CHECK(still_htimer_manage() >= 0);
        sched_yield();
    }
    COUNT(over);
    while (LOAD(over) < LCORES) {
        CHECK(still_htimer_manage() >= 0);
        sched_yield();
    }
    CHECK(still_htimer_stop() == 0);
    CHECK(still_htimer_mgr_of_lcore(me) == NULL && errno == ESRCH);
    return 0;
}

static void *registers(void *unused)
{
    (void)unused;
    CHECK(rte_thread_register() == 0 && rte_lcore_id() == LCORES);
    CHECK(still_htimer_start(NULL) == 0 && still_htimer_mgr_of_lcore(LCORES) == still_htimer_mgr_self());
    STORE(registered, 1);
    while (LOAD(fired[LCORES]) == 0) {
        CHECK(still_htimer_manage() >= 0);
        sched_yield();
    }
    rte_thread_unregister();
    return NULL;
}

static void *is_unknown(void *unused)
{
    (void)unused;
    CHECK(still_htimer_start(NULL) == 0);
    CHECK(still_htimer_mgr_of_lcore(LCORE_ID_ANY) == NULL);
    struct still_htimer_mgr *target = still_htimer_mgr_of_lcore(LCORES);
    CHECK(target != NULL);
    CHECK(still_htimer_async_add(target, &late[0], 1, 0, count, (void *)(uintptr_t)LCORES, 0, NULL, NULL) == 0);
    UNTIL(still_htimer_process() == 1);
    CHECK(still_htimer_stop() == 0);
    return NULL;
}

int main(void)
{
    char program[] = "htimer", huge[] = "--no-huge", pci[] = "--no-pci", memory[] = "-m", megabytes[] = "64",
         shared[] = "--no-shconf", telemetry[] = "--no-telemetry", cores[] = "--lcores", sets[] = "(0-3)@0";
    char *arguments[] = { program, huge, pci, memory, megabytes, shared, telemetry, cores, sets, NULL };
    CHECK(rte_eal_init(9, arguments) >= 0);
    CHECK(rte_eal_mp_remote_launch(serve, NULL, SKIP_MAIN) == 0);
    CHECK(serve(NULL) == 0);
    rte_eal_mp_wait_lcore();

    pthread_t thread = started(registers, NULL);
    UNTIL(LOAD(registered));
    CHECK(pthread_join(started(is_unknown, NULL), NULL) == 0);
    CHECK(pthread_join(thread, NULL) == 0);
    CHECK(rte_eal_cleanup() == 0);
    return 0;
}
