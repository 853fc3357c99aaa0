/* A table of flows. Each packet looks up its flow, and silent flows expire.
 *
 *     cc flows.c $(pkg-config --cflags --libs stillpoint) && ./a.out
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "stillpoint.h"

/* The key: 13 bytes, as on the wire. The table takes keys of any size. */
struct tuple {
    uint32_t from, to;
    uint16_t from_port, to_port;
    uint8_t protocol;
} __attribute__((packed));

struct flow {
    struct still_timer timer; /* first, so that a timer's address is also that of its flow */
    struct still_callback callback;
    struct tuple tuple;
    unsigned long packets;
};

enum { TIMEOUT = 1000 };

static struct still_domain *domain;
static struct still_table *table;
static struct still_wheel *wheel;
static struct still_queue *queue; /* flows that wait for their readers; a push neither fails nor allocates */

static void fail(const char *what)
{
    fprintf(stderr, "%s: %s\n", what, still_error());
    exit(1);
}

static void free_flow(struct still_callback *callback)
{
    free((char *)callback - offsetof(struct flow, callback));
}

/* Handles one packet, in the caller's region. */
static void packet(struct still_reader *reader, const struct tuple *tuple, uint64_t now)
{
    void *found;
    struct flow *flow;
    switch (still_table_get(table, reader, tuple, &found)) {
    case 1:
        flow = found;
        break;
    case 0:
        flow = calloc(1, sizeof *flow);
        if (flow == NULL)
            abort();
        flow->tuple = *tuple;
        if (still_table_insert(table, tuple, flow, NULL) != 0)
            fail("no entry");
        break;
    default:
        fail("no lookup");
        return;
    }
    flow->packets++;
    still_timer_reset(wheel, &flow->timer, now + TIMEOUT);
}

static unsigned expire(uint64_t now)
{
    unsigned expired = 0;
    still_wheel_advance(wheel, now);
    struct still_timer *timer;
    while ((timer = still_wheel_pop(wheel)) != NULL) {
        struct flow *flow = (struct flow *)(void *)timer;
        if (still_table_remove(table, &flow->tuple, NULL) != 1)
            fail("no such flow");
        /* Other threads could be reading the flow in their regions. */
        still_call(queue, &flow->callback, free_flow);
        expired++;
    }
    still_queue_poll(queue, STILL_ALL);
    return expired;
}

int main(void)
{
    enum { FLOWS = 10000, PACKETS = 200000 };
    domain = still_domain_new(NULL);
    struct still_reader *reader = domain == NULL ? NULL : still_reader_new(domain);
    if (reader == NULL)
        fail("no domain");
    table = still_table_new(domain, sizeof(struct tuple), NULL);
    wheel = still_wheel_new(0);
    queue = still_queue_new(domain);
    if (table == NULL || wheel == NULL || queue == NULL)
        fail("no table");

    unsigned long expired = 0;
    uint64_t now = 0;
    srand(1);
    for (unsigned i = 0; i < PACKETS; i++) {
        struct tuple tuple = { .from = (uint32_t)(rand() % FLOWS), .to = 1, .from_port = 1234, .to_port = 443, .protocol = 6 };
        still_pin(reader);
        packet(reader, &tuple, now);
        still_unpin(reader);
        if (i % 32 == 31)
            expired += expire(++now);
    }
    ssize_t alive = still_table_len(table);
    expired += expire(now + TIMEOUT);
    ssize_t left = still_table_len(table);
    if (still_queue_barrier(queue, STILL_FOREVER) < 0)
        fail("not freed");
    printf("%u packets, %zd flows alive at the end, %lu expired, %zd left\n", PACKETS, alive, expired, left);
    still_queue_free(queue);
    still_wheel_free(wheel);
    still_table_free(table);
    still_reader_free(reader);
    still_domain_free(domain);
    return alive > 0 && left == 0 ? 0 : 1;
}
