/* DPDK's routing tables, which were compiled against DPDK's header, with our variable. */
#define ALLOW_EXPERIMENTAL_API
#include <rte_rcu_qsbr.h>

#include <rte_eal.h>
#include <rte_lpm.h>

#include "check.h"

/* A route that is longer than 24 bits takes a group of 256 entries, which readers find through the first table. */
enum { GROUPS = 8, READER = 1, ROUNDS = 1000, LENGTH = 32, STAY = 3 };

static struct rte_lpm *table;
static struct rte_rcu_qsbr *v;
static int ended, found;

static uint32_t address(uint32_t route)
{
    return (route + 1) << 8 | 1;
}

/* If a group were used again during a lookup, the lookup would find another route's hop. */
static void *read_it(void *unused)
{
    (void)unused;
    CHECK(rte_rcu_qsbr_thread_register(v, READER) == 0);
    rte_rcu_qsbr_thread_online(v, READER);
    while (!LOAD(ended)) {
        for (uint32_t route = 0; route < 2 * GROUPS; route++) {
            uint32_t hop = 0;
            if (rte_lpm_lookup(table, address(route), &hop) == 0) {
                CHECK(hop == route + 1);
                STORE(found, 1);
            }
        }
        rte_rcu_qsbr_quiescent(v, READER);
    }
    rte_rcu_qsbr_thread_offline(v, READER);
    CHECK(rte_rcu_qsbr_thread_unregister(v, READER) == 0);
    return NULL;
}

static int add(uint32_t route)
{
    return rte_lpm_add(table, address(route), LENGTH, route + 1);
}

static void over(enum rte_lpm_qsbr_mode mode, const char *name)
{
    struct rte_lpm_config sizes;
    struct rte_lpm_rcu_config config;
    memset(&sizes, 0, sizeof sizes);
    memset(&config, 0, sizeof config);
    sizes.max_rules = 4 * GROUPS;
    sizes.number_tbl8s = GROUPS;
    table = rte_lpm_create(name, SOCKET_ID_ANY, &sizes);
    CHECK(table != NULL);
    void *memory = NULL;
    CHECK(posix_memalign(&memory, 64, rte_rcu_qsbr_get_memsize(8)) == 0);
    v = (struct rte_rcu_qsbr *)memory;
    CHECK(rte_rcu_qsbr_init(v, 8) == 0);
    config.v = v;
    config.mode = mode;
    CHECK(rte_lpm_rcu_qsbr_add(table, &config) == 0);
    ended = found = 0;

    if (mode == RTE_LPM_QSBR_MODE_DQ) {
        /* While a reader reports nothing, no group is freed. In the end there is no free group. */
        CHECK(rte_rcu_qsbr_thread_register(v, 0) == 0);
        rte_rcu_qsbr_thread_online(v, 0);
        uint32_t route = 0;
        while (add(route) == 0) {
            CHECK(rte_lpm_delete(table, address(route), LENGTH) == 0);
            route++;
            CHECK(route < 10 * GROUPS);
        }
        CHECK(route == GROUPS);
        rte_rcu_qsbr_quiescent(v, 0);
        CHECK(add(route) == 0 && rte_lpm_delete(table, address(route), LENGTH) == 0);
        rte_rcu_qsbr_thread_offline(v, 0);
        CHECK(rte_rcu_qsbr_thread_unregister(v, 0) == 0);
    }

    pthread_t reader = started(read_it, NULL);
    uint32_t round = 0;
    for (; round < ROUNDS || !LOAD(found); round++) {
        uint32_t route = round % (2 * GROUPS);
        UNTIL(add(route) == 0);
        /* Some routes stay for a while, so that lookups find them. */
        if (round >= STAY)
            CHECK(rte_lpm_delete(table, address((round - STAY) % (2 * GROUPS)), LENGTH) == 0);
    }
    STORE(ended, 1);
    joined(reader);
    printf("%s: %u routes\n", name, round);
    rte_lpm_free(table);
    free(memory);
}

int main(void)
{
    char program[] = "lpm", huge[] = "--no-huge", pci[] = "--no-pci", memory[] = "-m", megabytes[] = "256",
         shared[] = "--no-shconf", telemetry[] = "--no-telemetry", cores[] = "-l", core[] = "0";
    char *arguments[] = { program, huge, pci, memory, megabytes, shared, telemetry, cores, core, NULL };
    CHECK(rte_eal_init(9, arguments) >= 0);
    over(RTE_LPM_QSBR_MODE_SYNC, "sync");
    over(RTE_LPM_QSBR_MODE_DQ, "dq");
    CHECK(rte_eal_cleanup() == 0);
    return 0;
}
