/* A table of flows. One thread handles packets, and expires the flows that are silent; two threads look flows up meanwhile.
 *
 *     cc flows.c $(pkg-config --cflags --libs stillpoint) -pthread && ./a.out
 *     ./a.out capture.pcap 50
 *
 * Without arguments, it makes its own packets. Otherwise it reads those of a capture (Ethernet), and handles them once, or as often as the
 * second argument says.
 *
 * Every thread looks up by still_table_protect or finds what only it frees. So there are no regions, and a reader that is preempted keeps
 * one flow from being freed: at the end, no others wait.
 */
#include <errno.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "stillpoint.h"

/* The key: 16 bytes, one of the sizes that lie in the entries of a table. The table compares all of them. An IPv6 address is folded into four
 * bytes, so that flows whose addresses fold alike are one flow here; keys of 40 bytes would tell them apart. */
struct tuple {
    uint32_t from, to;
    uint16_t from_port, to_port;
    uint8_t protocol;
    uint8_t version; /* of IP: 4 or 6 */
    uint8_t zero[2];
};
_Static_assert(sizeof(struct tuple) == 16, "there is no padding");

struct packet {
    struct tuple tuple;
    uint64_t time; /* in ms, from the first packet on */
    uint32_t bytes;
};

struct flow {
    struct still_timer timer; /* first, so that a timer's address is also that of its flow */
    struct tuple tuple;
    uint64_t packets, bytes; /* written by one thread, and read by others */
};

enum { TIMEOUT = 1000, MOST_FLOWS = 65536, READERS = 2 };

static struct still_domain *domain;
static struct still_table *table;
static struct packet *packets;
static size_t packet_count;
static int is_over;
static pthread_barrier_t barrier;

static void fail(const char *what)
{
    fprintf(stderr, "%s: %s\n", what, still_error());
    exit(1);
}

/* ------------------------------------------------------------------------------------------------------------------
 * The threads that look up
 */

struct viewer {
    pthread_t thread;
    size_t first; /* the packet that it begins with */
    unsigned long hits;
    int holds; /* whether it holds a flow at the end */
};

static void check(const struct flow *flow, const struct tuple *tuple)
{
    /* The flow would be another one by now if it had gone back to the pool. */
    if (memcmp(&flow->tuple, tuple, sizeof *tuple) != 0 || __atomic_load_n(&flow->packets, __ATOMIC_RELAXED) == 0) {
        fprintf(stderr, "a flow was freed while a reader held it\n");
        exit(1);
    }
}

static void *look_up(void *argument)
{
    struct viewer *viewer = argument;
    struct still_reader *reader = still_reader_new(domain);
    if (reader == NULL)
        fail("no reader");
    struct still_protected held = { NULL, NULL }, found; /* each holds nothing, or a flow */
    const struct tuple *tuple = NULL;                    /* of the flow that is held */
    pthread_barrier_wait(&barrier);
    for (size_t i = viewer->first; !__atomic_load_n(&is_over, __ATOMIC_ACQUIRE); i = (i + 1) % packet_count) {
        switch (still_table_protect(table, reader, &packets[i].tuple, &found)) {
        case 1:
            check(found.object, &packets[i].tuple);
            if (held.object != NULL)
                check(held.object, tuple); /* it may take as long as it likes */
            still_release(held);
            held = found;
            tuple = &packets[i].tuple;
            viewer->hits++;
            break;
        case 0:
            break;
        default:
            fail("no lookup");
        }
    }
    /* It still holds the flow that it has found last, which may have expired since, and sleeps. What a reader protects stays protected while it is offline. */
    viewer->holds = held.object != NULL;
    still_reader_offline(reader);
    pthread_barrier_wait(&barrier);
    pthread_barrier_wait(&barrier);
    if (held.object != NULL)
        check(held.object, tuple);
    still_release(held);
    still_reader_free(reader);
    return NULL;
}

/* ------------------------------------------------------------------------------------------------------------------
 * The thread that handles packets
 */

struct writer {
    struct still_reader *reader;
    struct still_reclaimer *reclaimer; /* flows that readers may hold */
    struct still_local *local;
    struct still_wheel *wheel;
    unsigned long begun, expired, refused;
    ssize_t most; /* flows that waited after a poll */
};

/* Called by still_poll, on this thread. */
static void put_back(void *flow, void *local)
{
    if (still_local_put(local, flow) != 0)
        fail("not put back");
}

static void handle(struct writer *writer, const struct packet *packet, uint64_t now)
{
    void *found;
    struct flow *flow;
    /* Only this thread frees flows, so it needs no region and no slot for those that it finds. */
    switch (still_table_get(table, writer->reader, &packet->tuple, &found)) {
    case 1:
        flow = found;
        __atomic_store_n(&flow->packets, flow->packets + 1, __ATOMIC_RELAXED);
        __atomic_store_n(&flow->bytes, flow->bytes + packet->bytes, __ATOMIC_RELAXED);
        break;
    case 0:
        flow = still_local_get(writer->local);
        if (flow == NULL) { /* all flows are in use: this packet belongs to none */
            writer->refused++;
            return;
        }
        memset(flow, 0, sizeof *flow);
        flow->tuple = packet->tuple;
        flow->packets = 1;
        flow->bytes = packet->bytes;
        switch (still_table_insert(table, &packet->tuple, flow, NULL)) {
        case 0:
            break;
        case -ENOSPC: /* a viewer holds up an entry that was removed: its flow is free already */
            put_back(flow, writer->local);
            writer->refused++;
            return;
        default:
            fail("no entry");
            return;
        }
        writer->begun++;
        break;
    default:
        fail("no lookup");
        return;
    }
    still_timer_reset(writer->wheel, &flow->timer, now + TIMEOUT);
}

static void expire(struct writer *writer, uint64_t now)
{
    still_wheel_advance(writer->wheel, now);
    struct still_timer *timer;
    while ((timer = still_wheel_pop(writer->wheel)) != NULL) {
        struct flow *flow = (struct flow *)(void *)timer;
        if (still_table_remove(table, &flow->tuple, NULL) != 1)
            fail("no such flow");
        /* Readers may hold it. still_call would not wait for them. */
        if (still_retire(writer->reclaimer, flow, sizeof *flow, put_back, writer->local) != 0)
            fail("not retired");
        writer->expired++;
    }
    still_poll(writer->reclaimer, STILL_ALL);
    ssize_t waiting = still_pending(writer->reclaimer);
    if (waiting > writer->most)
        writer->most = waiting;
}

/* Handles all packets as often as `times` says. Returns the time at the end. */
static uint64_t handle_all(struct writer *writer, unsigned long times)
{
    uint64_t now = 0, begin = 0;
    for (unsigned long turn = 0; turn < times; turn++, begin = now + 1) {
        for (size_t i = 0; i < packet_count; i++) {
            now = begin + packets[i].time;
            handle(writer, &packets[i], now);
            if (i % 32 == 31 || i + 1 == packet_count)
                expire(writer, now);
        }
    }
    return now;
}

/* ------------------------------------------------------------------------------------------------------------------
 * Packets
 */

static void make_packets(void)
{
    enum { FLOWS = 10000, PACKETS = 200000 };
    packets = calloc(PACKETS, sizeof *packets);
    if (packets == NULL)
        abort();
    srand(1);
    for (; packet_count < PACKETS; packet_count++) {
        struct packet *packet = &packets[packet_count];
        packet->tuple.from = (uint32_t)(rand() % FLOWS);
        packet->tuple.to = 1;
        packet->tuple.from_port = 1234;
        packet->tuple.to_port = 443;
        packet->tuple.protocol = 6;
        packet->tuple.version = 4;
        packet->time = packet_count / 32;
        packet->bytes = 100;
    }
}

/* Bytes of a packet that were captured, and are not looked at yet. */
struct bytes {
    const unsigned char *at;
    size_t left;
};

/* Takes the next bytes. NULL if there are not so many. */
static const unsigned char *take(struct bytes *bytes, size_t count)
{
    if (bytes->left < count)
        return NULL;
    const unsigned char *start = bytes->at;
    bytes->at += count;
    bytes->left -= count;
    return start;
}

static uint16_t number16(const unsigned char *at)
{
    return (uint16_t)(at[0] << 8 | at[1]);
}

static uint32_t number32(const unsigned char *at)
{
    return (uint32_t)number16(at) << 16 | number16(at + 2);
}

/* FNV-1a. */
static uint32_t folded(const unsigned char *address)
{
    uint32_t hash = 2166136261u;
    for (int i = 0; i < 16; i++)
        hash = (hash ^ address[i]) * 16777619u;
    return hash;
}

/* Reads the ports that follow the headers of IP. What is not captured, or has no ports, has the ports 0. */
static void read_ports(struct bytes bytes, struct tuple *tuple)
{
    int has_ports = tuple->protocol == 6 || tuple->protocol == 17 || tuple->protocol == 132; /* TCP, UDP, SCTP */
    const unsigned char *ports = has_ports ? take(&bytes, 4) : NULL;
    if (ports != NULL) {
        tuple->from_port = number16(ports);
        tuple->to_port = number16(ports + 2);
    }
}

static int read_ipv4(struct bytes bytes, struct tuple *tuple)
{
    const unsigned char *header = take(&bytes, 20);
    if (header == NULL || header[0] >> 4 != 4)
        return 0;
    size_t length = (size_t)(header[0] & 15) * 4;
    if (length < 20 || take(&bytes, length - 20) == NULL)
        return 0;
    tuple->version = 4;
    tuple->protocol = header[9];
    tuple->from = number32(header + 12);
    tuple->to = number32(header + 16);
    if ((number16(header + 6) & 0x1fff) == 0) /* only the first fragment has ports */
        read_ports(bytes, tuple);
    return 1;
}

static int read_ipv6(struct bytes bytes, struct tuple *tuple)
{
    const unsigned char *header = take(&bytes, 40), *next;
    if (header == NULL || header[0] >> 4 != 6)
        return 0;
    tuple->version = 6;
    tuple->protocol = header[6];
    tuple->from = folded(header + 8);
    tuple->to = folded(header + 24);
    /* Headers of options, routing and fragments come before that of the protocol. Each takes bytes, so this ends. */
    for (;;) {
        switch (tuple->protocol) {
        case 0: case 43: case 60:
            if ((next = take(&bytes, 8)) == NULL || take(&bytes, (size_t)next[1] * 8) == NULL)
                return 1;
            break;
        case 44:
            if ((next = take(&bytes, 8)) == NULL || (number16(next + 2) & 0xfff8) != 0)
                return 1;
            break;
        default:
            read_ports(bytes, tuple);
            return 1;
        }
        tuple->protocol = next[0];
    }
}

/* Finds the flow of a packet: 1; or 0, if it is no packet of IP, or its headers are damaged or cut off. */
static int read_ethernet(struct bytes bytes, struct tuple *tuple)
{
    memset(tuple, 0, sizeof *tuple);
    const unsigned char *header = take(&bytes, 14);
    if (header == NULL)
        return 0;
    uint16_t type = number16(header + 12);
    while (type == 0x8100 || type == 0x88a8) { /* VLAN */
        if ((header = take(&bytes, 4)) == NULL)
            return 0;
        type = number16(header + 2);
    }
    switch (type) {
    case 0x0800:
        return read_ipv4(bytes, tuple);
    case 0x86dd:
        return read_ipv6(bytes, tuple);
    default:
        return 0;
    }
}

static void refuse(const char *path, const char *why, ...)
{
    va_list numbers;
    va_start(numbers, why);
    fprintf(stderr, "%s: ", path);
    vfprintf(stderr, why, numbers);
    fputc('\n', stderr);
    va_end(numbers);
    exit(2);
}

static struct bytes read_file(const char *path)
{
    FILE *file = fopen(path, "rb");
    if (file == NULL)
        refuse(path, "%s", strerror(errno));
    unsigned char *start = NULL;
    size_t size = 0, got;
    do {
        enum { PIECE = 1 << 20 };
        start = realloc(start, size + PIECE);
        if (start == NULL)
            refuse(path, "there is no memory for this file");
        size += got = fread(start + size, 1, PIECE, file);
    } while (got > 0);
    if (ferror(file))
        refuse(path, "%s", strerror(errno));
    fclose(file);
    return (struct bytes){ start, size };
}

/* A number of the file, in the byte order of the machine that wrote it. */
static uint32_t number_of_file(const unsigned char *at, int is_little)
{
    return is_little ? (uint32_t)at[3] << 24 | (uint32_t)at[2] << 16 | (uint32_t)at[1] << 8 | at[0] : number32(at);
}

static void read_packets(const char *path)
{
    enum { ETHERNET = 1, LONGEST = 262144 };
    struct bytes file = read_file(path);
    const unsigned char *start = file.at, *header = take(&file, 24), *record;
    if (header == NULL)
        refuse(path, "this is no capture: it is shorter than the header of one");
    int is_little = header[0] == 0xd4 || header[0] == 0x4d;
    uint32_t magic = number_of_file(header, is_little);
    if (number32(header) == 0x0a0d0d0a)
        refuse(path, "this is a pcapng file: convert it by `editcap -F pcap`");
    if (magic != 0xa1b2c3d4 && magic != 0xa1b23c4d)
        refuse(path, "this is no pcap file: it begins with %08x", (unsigned)number32(header));
    uint32_t per_ms = magic == 0xa1b2c3d4 ? 1000 : 1000000; /* times in us or ns */
    uint32_t link = number_of_file(header + 20, is_little) & 0xfffffff;
    if (link != ETHERNET)
        refuse(path, "the packets are not those of Ethernet: their link type is %u", (unsigned)link);

    size_t room = 0, others = 0;
    uint64_t begin = 0, last = 0;
    while (file.left > 0) {
        size_t place = (size_t)(file.at - start);
        if ((record = take(&file, 16)) == NULL) {
            fprintf(stderr, "%s: the file is cut off at byte %zu\n", path, place);
            break;
        }
        uint32_t captured = number_of_file(record + 8, is_little);
        if (captured > LONGEST)
            refuse(path, "the file is damaged: the packet at byte %zu has %u bytes", place, (unsigned)captured);
        struct bytes bytes = { take(&file, captured), captured };
        if (bytes.at == NULL) {
            fprintf(stderr, "%s: the file is cut off within the packet at byte %zu\n", path, place);
            break;
        }
        if (packet_count == room) {
            room = room * 2 + 1024;
            packets = realloc(packets, room * sizeof *packets);
            if (packets == NULL)
                refuse(path, "there is no memory for its packets");
        }
        struct packet *packet = &packets[packet_count];
        if (!read_ethernet(bytes, &packet->tuple)) {
            others++;
            continue;
        }
        uint64_t time = (uint64_t)number_of_file(record, is_little) * 1000 + number_of_file(record + 4, is_little) / per_ms;
        if (packet_count == 0)
            begin = time;
        /* A clock may have been set back. */
        time = time > begin ? time - begin : 0;
        packet->time = last = time > last ? time : last;
        packet->bytes = number_of_file(record + 12, is_little);
        packet_count++;
    }
    if (packet_count == 0)
        refuse(path, "there are no packets of IP in it, and %zu others", others);
    printf("%s: %zu packets of IP, %zu others\n", path, packet_count, others);
    free((void *)(uintptr_t)start);
}

/* ------------------------------------------------------------------------------------------------------------------
 * The program
 */

static unsigned long number_of_times(const char *text)
{
    char *end;
    unsigned long times = strtoul(text, &end, 10);
    if (*end != 0 || times < 1 || times > 1000000) {
        fprintf(stderr, "'%s' is not a number of times from 1 to 1000000\n", text);
        exit(2);
    }
    return times;
}

int main(int count, char **arguments)
{
    if (count > 3) {
        fprintf(stderr, "usage: %s [CAPTURE.pcap [TIMES]]\n", arguments[0]);
        return 2;
    }
    unsigned long times = count == 3 ? number_of_times(arguments[2]) : 1;
    if (count == 1)
        make_packets();
    else
        read_packets(arguments[1]);

    domain = still_domain_new(NULL);
    if (domain == NULL)
        fail("no domain");
    struct still_pool *pool = still_pool_new(MOST_FLOWS, sizeof(struct flow), 64, NULL);
    if (pool == NULL)
        fail("no pool");
    struct still_table_options table_options = STILL_TABLE_OPTIONS_INIT;
    table_options.max_len = MOST_FLOWS;
    table = still_table_new(domain, sizeof(struct tuple), &table_options);
    struct still_reclaimer_options options = STILL_RECLAIMER_OPTIONS_INIT;
    options.max_pending = MOST_FLOWS + 64; /* the pool has fewer flows: the reclaimer is never full */
    struct writer writer = {
        .reader = still_reader_new(domain),
        .reclaimer = still_reclaimer_new(domain, &options),
        .local = still_local_new(pool),
        .wheel = still_wheel_new(0),
    };
    if (table == NULL || writer.reader == NULL || writer.reclaimer == NULL || writer.local == NULL || writer.wheel == NULL)
        fail("no table");

    struct viewer viewers[READERS] = { { .first = 0 } };
    if (pthread_barrier_init(&barrier, NULL, READERS + 1) != 0)
        abort();
    for (size_t i = 0; i < READERS; i++) {
        viewers[i].first = packet_count / READERS * i;
        if (pthread_create(&viewers[i].thread, NULL, look_up, &viewers[i]) != 0)
            abort();
    }
    pthread_barrier_wait(&barrier);
    uint64_t now = handle_all(&writer, times);
    ssize_t alive = still_table_len(table);

    /* The readers stop, and each may hold a flow. All others are freed. */
    __atomic_store_n(&is_over, 1, __ATOMIC_RELEASE);
    pthread_barrier_wait(&barrier);
    expire(&writer, now + TIMEOUT);
    ssize_t left = still_table_len(table), after_poll = still_pending(writer.reclaimer), held = 0;
    unsigned long hits = 0;
    for (int i = 0; i < READERS; i++) {
        held += viewers[i].holds;
        hits += viewers[i].hits;
    }
    int64_t limit = 100000000;
    int flushed = still_flush(writer.reclaimer, limit);
    if (flushed != 0 && flushed != -ETIMEDOUT)
        fail("not flushed");
    ssize_t waiting = still_pending(writer.reclaimer);
    pthread_barrier_wait(&barrier);
    for (int i = 0; i < READERS; i++)
        pthread_join(viewers[i].thread, NULL);
    if (still_flush(writer.reclaimer, STILL_FOREVER) != 0)
        fail("not freed");

    printf("%lu packets, %lu flows, %zd alive after the last packet, %lu expired, %zd left; %lu packets without a flow\n",
           times * packet_count, writer.begun, alive, writer.expired, left, writer.refused);
    printf("%d readers have found %lu flows\n", READERS, hits);
    printf("%zd flows wait at the end, and readers hold %zd; after the last poll, %zd waited; at most %zd have waited\n", waiting, held,
           after_poll, writer.most);

    still_wheel_free(writer.wheel);
    still_table_free(table);
    still_reclaimer_free(writer.reclaimer);
    still_local_free(writer.local);
    ssize_t in_use = still_pool_free(pool);
    still_reader_free(writer.reader);
    still_domain_free(domain);
    pthread_barrier_destroy(&barrier);
    free(packets);
    return alive > 0 && left == 0 && waiting <= held && in_use == 0 ? 0 : 1;
}
