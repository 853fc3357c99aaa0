/* The driver "stillpoint" in a secondary process: what reaches it is refused, and the primary one's mempool stays whole. Run without
 * arguments it is the primary process; it starts the other. Needs huge pages, which both share: `.ci/dpdk`. */
#define ALLOW_EXPERIMENTAL_API
#include <rte_eal.h>
#include <rte_errno.h>
#include <rte_mempool.h>
#include <sys/wait.h>
#include <unistd.h>

#include "check.h"

enum { OBJECTS = 2047 };

static char *with(char *program, char *kind)
{
    static char prefix[] = "--file-prefix=still", pci[] = "--no-pci", telemetry[] = "--no-telemetry", lcores[] = "--lcores=0@0",
                memory[] = "-m64";
    char *arguments[] = { program, prefix, pci, telemetry, lcores, memory, kind, NULL };
    /* A secondary process takes the memory of the primary one. */
    CHECK(rte_eal_init(kind == NULL ? 6 : 5, kind == NULL ? arguments : (char *[]){ program, prefix, pci, telemetry, kind, NULL }) >= 0);
    return program;
}

static int secondary(char *program)
{
    static char kind[] = "--proc-type=secondary";
    void *objects[8];

    (void)with(program, kind);
    struct rte_mempool *plain = rte_mempool_lookup("plain"), *cached = rte_mempool_lookup("cached");
    CHECK(plain != NULL && cached != NULL);
    CHECK(rte_mempool_get(plain, objects) == -ENOTSUP);
    CHECK(rte_mempool_get_bulk(cached, objects, 8) == -ENOTSUP);
    CHECK(rte_mempool_get_contig_blocks(plain, objects, 1) == -ENOTSUP);
    struct rte_mempool *own = rte_mempool_create_empty("own", OBJECTS, 64, 0, 0, SOCKET_ID_ANY, 0);
    CHECK(own != NULL && rte_mempool_set_ops_byname(own, "stillpoint", NULL) == 0);
    CHECK(rte_mempool_populate_default(own) < 0);
    rte_mempool_free(own);
    CHECK(rte_eal_cleanup() == 0);
    return 0;
}

static struct rte_mempool *made(const char *name, unsigned cache)
{
    struct rte_mempool *pool = rte_mempool_create_empty(name, OBJECTS, 64, cache, 0, SOCKET_ID_ANY, 0);

    CHECK(pool != NULL && rte_mempool_set_ops_byname(pool, "stillpoint", NULL) == 0);
    CHECK(rte_mempool_populate_default(pool) == OBJECTS);
    return pool;
}

int main(int count, char **arguments)
{
    static void *objects[OBJECTS];

    if (count > 1)
        return secondary(arguments[0]);
    (void)with(arguments[0], NULL);
    struct rte_mempool *plain = made("plain", 0), *cached = made("cached", 64);
    CHECK(rte_mempool_get_bulk(plain, objects, 100) == 0);
    pid_t other = fork();
    CHECK(other >= 0);
    if (other == 0) {
        char is_other[] = "secondary";
        (void)execv("/proc/self/exe", (char *[]){ arguments[0], is_other, NULL });
        _exit(127);
    }
    int status = 1;
    CHECK(waitpid(other, &status, 0) == other && status == 0);
    rte_mempool_put_bulk(plain, objects, 100);
    for (int turn = 0; turn < 2; turn++) {
        struct rte_mempool *pool = turn == 0 ? plain : cached;
        CHECK(rte_mempool_full(pool) && rte_mempool_avail_count(pool) == OBJECTS);
        CHECK(rte_mempool_get_bulk(pool, objects, OBJECTS) == 0);
        rte_mempool_put_bulk(pool, objects, OBJECTS);
        rte_mempool_free(pool);
    }
    CHECK(rte_eal_cleanup() == 0);
    return 0;
}
