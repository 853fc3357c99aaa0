/* DPDK's hash tables, which were compiled against DPDK's header, with our variable. */
#define ALLOW_EXPERIMENTAL_API
#include <rte_rcu_qsbr.h>

#include <rte_eal.h>
#include <rte_hash.h>
#include <rte_jhash.h>

#include "check.h"

enum { ENTRIES = 64, READER = 1, ROUNDS = 1000 };

static struct rte_hash *table;
static struct rte_rcu_qsbr *v;
static int ended;
static unsigned int freed;

static void destroy(void *p, void *data)
{
    uint64_t *value = (uint64_t *)data;
    CHECK(p == (void *)&freed && *value != 0);
    *value = 0;
    free(value);
    freed++;
}

/* Values that are found are not freed. */
static void *read_it(void *unused)
{
    (void)unused;
    CHECK(rte_rcu_qsbr_thread_register(v, READER) == 0);
    rte_rcu_qsbr_thread_online(v, READER);
    while (!LOAD(ended)) {
        for (uint32_t key = 0; key < ENTRIES; key++) {
            void *data = NULL;
            if (rte_hash_lookup_data(table, &key, &data) >= 0)
                CHECK(*(uint64_t *)data == key + 1);
        }
        rte_rcu_qsbr_quiescent(v, READER);
    }
    rte_rcu_qsbr_thread_offline(v, READER);
    CHECK(rte_rcu_qsbr_thread_unregister(v, READER) == 0);
    return NULL;
}

static int add(uint32_t key)
{
    uint64_t *value = (uint64_t *)malloc(sizeof *value);
    CHECK(value != NULL);
    *value = key + 1;
    int answer = rte_hash_add_key_data(table, &key, value);
    if (answer != 0)
        free(value);
    return answer;
}

static void over(enum rte_hash_qsbr_mode mode, const char *name)
{
    struct rte_hash_parameters parameters;
    struct rte_hash_rcu_config config;
    memset(&parameters, 0, sizeof parameters);
    memset(&config, 0, sizeof config);
    parameters.name = name;
    parameters.entries = ENTRIES;
    parameters.key_len = sizeof(uint32_t);
    parameters.hash_func = rte_jhash;
    parameters.extra_flag = RTE_HASH_EXTRA_FLAGS_RW_CONCURRENCY_LF;
    table = rte_hash_create(&parameters);
    CHECK(table != NULL);
    void *memory = NULL;
    CHECK(posix_memalign(&memory, 64, rte_rcu_qsbr_get_memsize(8)) == 0);
    v = (struct rte_rcu_qsbr *)memory;
    CHECK(rte_rcu_qsbr_init(v, 8) == 0);
    config.v = v;
    config.mode = mode;
    config.free_key_data_func = destroy;
    config.key_data_ptr = &freed;
    CHECK(rte_hash_rcu_qsbr_add(table, &config) == 0);
    ended = 0;
    freed = 0;

    if (mode == RTE_HASH_QSBR_MODE_DQ) {
        /* While a reader reports nothing, nothing is freed. In the end the table is full. */
        CHECK(rte_rcu_qsbr_thread_register(v, 0) == 0);
        rte_rcu_qsbr_thread_online(v, 0);
        uint32_t key = 0;
        while (add(key) == 0) {
            CHECK(rte_hash_del_key(table, &key) >= 0);
            key++;
            CHECK(key < 10 * ENTRIES);
        }
        CHECK(freed == 0 && key >= ENTRIES);
        rte_rcu_qsbr_quiescent(v, 0);
        rte_rcu_qsbr_thread_offline(v, 0);
        CHECK(rte_rcu_qsbr_thread_unregister(v, 0) == 0);
    }

    pthread_t reader = started(read_it, NULL);
    unsigned int deleted = 0;
    for (uint32_t round = 0; round < ROUNDS; round++) {
        uint32_t key = round % ENTRIES;
        UNTIL(add(key) == 0);
        CHECK(rte_hash_del_key(table, &key) >= 0);
        deleted++;
        if (mode == RTE_HASH_QSBR_MODE_SYNC)
            CHECK(freed == deleted);
    }
    STORE(ended, 1);
    joined(reader);
    CHECK(freed + ENTRIES * 2 > deleted);
    printf("%s: %u deleted, %u freed\n", name, deleted, freed);
    rte_hash_free(table);
    free(memory);
}

int main(void)
{
    char program[] = "hash", huge[] = "--no-huge", pci[] = "--no-pci", memory[] = "-m", megabytes[] = "128",
         shared[] = "--no-shconf", telemetry[] = "--no-telemetry", cores[] = "-l", core[] = "0";
    char *arguments[] = { program, huge, pci, memory, megabytes, shared, telemetry, cores, core, NULL };
    CHECK(rte_eal_init(9, arguments) >= 0);
    over(RTE_HASH_QSBR_MODE_SYNC, "sync");
    over(RTE_HASH_QSBR_MODE_DQ, "dq");
    CHECK(rte_eal_cleanup() == 0);
    return 0;
}
