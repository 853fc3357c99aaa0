/*
 * The functions of one flavour of liburcu. urcu_qsbr.c, urcu_memb.c and urcu_mb.c include this file after the flavour's header, and
 * after they define NAME, which makes the names of the functions. Where a flavour does not need a call (quiescent states in memb and mb,
 * read-side critical sections in qsbr), its header defines the call as nothing, so the same code serves all flavours.
 */
#include <pthread.h>
#include <sched.h>
#include <string.h>
#include <time.h>

/* The drop-in has no tables. */
#ifndef DROP_IN
#include <urcu/rculfhash.h>
#endif

#include "peer.h"

_Static_assert(sizeof(struct rcu_head) <= sizeof(((struct element *)0)->head), "room for the callback head");

/* How many users the thread's registration has. A thread may be a reader and the writer of several contenders; it registers once. */
static _Thread_local unsigned joined;

/* Registers the calling thread, and takes it offline, since it may sleep before it reads or retires. */
void NAME(join)(void)
{
    if (joined++ == 0) {
        rcu_register_thread();
        rcu_thread_offline();
    }
}

void NAME(leave)(void)
{
    if (--joined == 0)
        rcu_unregister_thread();
}

struct read_outcome NAME(read)(const struct read_job *job)
{
    struct read_outcome outcome;

    rcu_thread_online();
    READ_SLOTS(job, &outcome, rcu_read_lock(), { rcu_read_unlock(); rcu_quiescent_state(); },
               rcu_thread_offline(), rcu_thread_online());
    rcu_thread_offline();
    return outcome;
}

#ifndef DROP_IN
/* `Linked` in src/native/lfht.rs: an element in a table. */
struct linked {
    struct cds_lfht_node node;
    struct element element;
};

_Static_assert(sizeof(struct linked) == 128, "the layout of Linked");
_Static_assert(offsetof(struct linked, element) == 64, "the layout of Linked");

/*
 * Multiplicative hashing (Knuth, The Art of Computer Programming, volume 3, section 6.4). The high half is folded into the low half, from
 * which the table takes the bucket. Without the hash, each of the keys 0, 1, 2 and so on would have its own bucket, which is unrealistic.
 */
static inline unsigned long hash_of(uint64_t key)
{
    uint64_t product = (key + 1) * 0x9e3779b97f4a7c15u;

    product = (product ^ product >> 32) * 0x9e3779b97f4a7c15u;
    return product ^ product >> 32;
}

static int has_key(struct cds_lfht_node *node, const void *key)
{
    return caa_container_of(node, struct linked, node)->element.key == *(const uint64_t *)key;
}

/* Call it inside a read-side critical section. */
static inline struct linked *find(struct cds_lfht *table, uint64_t key)
{
    struct cds_lfht_iter iter;
    struct cds_lfht_node *node;

    cds_lfht_lookup(table, hash_of(key), has_key, &key, &iter);
    node = cds_lfht_iter_get_node(&iter);
    return node == NULL ? NULL : caa_container_of(node, struct linked, node);
}

static inline struct element *find_element(struct cds_lfht *table, uint64_t key)
{
    struct linked *found = find(table, key);

    return found == NULL ? NULL : &found->element;
}

/* Makes a table of this flavour. The number of buckets is a power of two, and never changes. Returns NULL if there is no memory. */
struct cds_lfht *NAME(table_new)(uint64_t buckets)
{
    return cds_lfht_new(buckets, buckets, buckets, 0, NULL);
}

/* Frees a table, which must be empty and in use by no thread. */
void NAME(table_free)(struct cds_lfht *table)
{
    if (cds_lfht_destroy(table, NULL) != 0) {
        fputs("a hash table of liburcu could not be destroyed\n", stderr);
        abort();
    }
}

/* Links a key that is not in the table. Only the writer calls this; its thread is registered. */
void NAME(table_link)(struct cds_lfht *table, struct linked *linked)
{
    rcu_thread_online();
    rcu_read_lock();
    cds_lfht_add(table, hash_of(linked->element.key), &linked->node);
    rcu_read_unlock();
    rcu_thread_offline();
}

/* Unlinks a key. Returns its element, or NULL if there was none. Only the writer calls this; its thread is registered. */
struct linked *NAME(table_unlink)(struct cds_lfht *table, uint64_t key)
{
    struct linked *found;

    rcu_thread_online();
    rcu_read_lock();
    found = find(table, key);
    if (found != NULL && cds_lfht_del(table, &found->node) != 0) {
        fputs("a hash table of liburcu has lost a key\n", stderr);
        abort();
    }
    rcu_read_unlock();
    rcu_thread_offline();
    return found;
}

struct read_outcome NAME(table_read)(struct cds_lfht *table, const struct read_job *job)
{
    struct read_outcome outcome;

    rcu_thread_online();
    READ_TABLE(job, &outcome, find_element(table, index_), rcu_read_lock(),
               { rcu_read_unlock(); rcu_quiescent_state(); }, rcu_thread_offline(), rcu_thread_online());
    rcu_thread_offline();
    return outcome;
}
#endif

/* Waits for a grace period. The calling thread is in no section, and need not be registered. */
void NAME(synchronize)(void)
{
    synchronize_rcu();
}

static pthread_once_t default_once = PTHREAD_ONCE_INIT;
static pthread_once_t realtime_once = PTHREAD_ONCE_INIT;
static struct call_rcu_data *default_worker;
static struct call_rcu_data *realtime_worker;

/* Called by `pthread_once`, because liburcu shows the worker to other threads before it knows the worker's thread id. */
static void start_default_worker(void)
{
    default_worker = get_default_call_rcu_data();
}

/* Called once in a process, because in liburcu 0.13 `call_rcu_data_free` does not join the thread that it stops. */
static void start_realtime_worker(void)
{
    realtime_worker = create_call_rcu_data(URCU_CALL_RCU_RT, -1);
}

/*
 * The worker that calls the callbacks: the default worker of the process, or one that polls its queue (URCU_CALL_RCU_RT).
 * It gets the affinity of the calling thread, as if this thread had started it.
 */
struct call_rcu_data *NAME(worker)(bool realtime)
{
    struct call_rcu_data *worker;
    cpu_set_t cpus;

    if (realtime) {
        pthread_once(&realtime_once, start_realtime_worker);
        worker = realtime_worker;
    } else {
        pthread_once(&default_once, start_default_worker);
        worker = default_worker;
    }
    /* An error is ignored: a worker with another affinity is still correct. */
    if (pthread_getaffinity_np(pthread_self(), sizeof cpus, &cpus) == 0)
        (void)pthread_setaffinity_np(get_call_rcu_thread(worker), sizeof cpus, &cpus);
    return worker;
}

/* Lets the default worker run on all CPUs that the process may use. */
static void free_worker(void)
{
    struct call_rcu_data *worker = NAME(worker)(false);
    cpu_set_t all;

    /* The kernel leaves out CPUs that do not exist or are not allowed. */
    memset(&all, 0xff, sizeof all);
    (void)pthread_setaffinity_np(get_call_rcu_thread(worker), sizeof all, &all);
}

/* Hands over an unlinked element; the worker calls `release` with its head after a grace period. */
void NAME(retire)(struct call_rcu_data *worker, struct element *element, void (*release)(struct rcu_head *))
{
    rcu_thread_online();
    set_thread_call_rcu_data(worker);
    call_rcu((struct rcu_head *)element->head, release);
    set_thread_call_rcu_data(NULL);
    rcu_thread_offline();
}

/* CPU time of the worker's thread so far, in nanoseconds; 0 if the system does not report it. */
uint64_t NAME(worker_cpu_ns)(struct call_rcu_data *worker)
{
    struct timespec time;
    clockid_t clock;

    if (pthread_getcpuclockid(get_call_rcu_thread(worker), &clock) != 0 || clock_gettime(clock, &time) != 0)
        return 0;
    return (uint64_t)time.tv_sec * 1000000000u + (uint64_t)time.tv_nsec;
}

/* Waits until the callbacks of all elements that were retired so far have returned. */
void NAME(barrier)(void)
{
    rcu_barrier();
}

#ifdef FLAVOUR_QSBR
void NAME(micro_quiescent)(uint64_t iterations)
{
    NAME(join)();
    rcu_thread_online();
    REPEAT(iterations, rcu_quiescent_state());
    rcu_thread_offline();
    NAME(leave)();
}
#else
void NAME(micro_pin)(uint64_t iterations)
{
    NAME(join)();
    REPEAT(iterations, { rcu_read_lock(); rcu_read_unlock(); });
    NAME(leave)();
}
#endif

/* Of the calls that report and those around a section, the flavour's own do something. */
void NAME(micro_reads)(const _Atomic bool *stop, _Atomic bool *begun)
{
    NAME(join)();
    rcu_thread_online();
    UNTIL(stop, begun, { rcu_read_lock(); rcu_read_unlock(); rcu_quiescent_state(); });
    rcu_thread_offline();
    NAME(leave)();
}

/* After this many objects, the loop below waits for the worker, which bounds the memory. */
enum { RETIRED_AT_ONCE = 1 << 20 };

static void release_object(struct rcu_head *head)
{
    free(head);
}

/* Replaces the object and retires the old one, which the worker frees on any CPU. */
static void retire_object(_Atomic(void *) *shared, uint64_t number)
{
    void *old = exchange_object(shared, new_object(number));

    if (old != NULL)
        call_rcu(old, release_object);
    rcu_quiescent_state();
    if ((number + 1) % RETIRED_AT_ONCE == 0)
        rcu_barrier();
}

/* First lets the worker run on all CPUs, so that it does not share the measured one. */
void NAME(micro_retire)(uint64_t iterations)
{
    _Atomic(void *) shared = NULL;

    NAME(join)();
    free_worker();
    rcu_thread_online();
    REPEAT(iterations, retire_object(&shared, i_));
    rcu_barrier();
    rcu_thread_offline();
    NAME(leave)();
    free(exchange_object(&shared, NULL));
}

void NAME(micro_heavy)(uint64_t iterations)
{
    NAME(join)();
    REPEAT(iterations, synchronize_rcu());
    NAME(leave)();
}

static uint64_t now_ns(void)
{
    struct timespec now;

    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

static void count_call(struct rcu_head *head)
{
    (void)head;
}

/* The number of heads. A head is used again once its callback has been called. */
enum { HEADS = 1 << 20 };

/* The time of `iterations` calls of `call_rcu`, in nanoseconds, without their callbacks; the worker runs on another CPU. */
uint64_t NAME(calls_ns)(uint64_t iterations)
{
    struct rcu_head *heads = malloc(HEADS * sizeof *heads);
    uint64_t spent = 0;

    if (heads == NULL) {
        fputs("out of memory: no room for heads of callbacks\n", stderr);
        abort();
    }
    /* Touches the pages, so that page faults do not count. */
    memset(heads, 0xff, HEADS * sizeof *heads);
    NAME(join)();
    free_worker();
    while (iterations > 0) {
        uint64_t count = iterations < HEADS ? iterations : HEADS, begin;

        rcu_thread_online();
        begin = now_ns();
        for (uint64_t i = 0; i < count; i++)
            call_rcu(&heads[i], count_call);
        spent += now_ns() - begin;
        rcu_thread_offline();
        rcu_barrier();
        iterations -= count;
    }
    NAME(leave)();
    free(heads);
    return spent;
}

/* Makes workers, lets each call a callback, and returns how long it takes to free them when all are idle, in nanoseconds. */
uint64_t NAME(free_workers_ns)(unsigned count)
{
    struct call_rcu_data **workers = calloc(count, sizeof(struct call_rcu_data *));
    struct rcu_head *heads = calloc(count, sizeof *heads);
    uint64_t begin;

    if (workers == NULL || heads == NULL) {
        fputs("out of memory: no room for workers\n", stderr);
        abort();
    }
    NAME(join)();
    for (unsigned i = 0; i < count; i++) {
        workers[i] = create_call_rcu_data(0, -1);
        if (workers[i] == NULL) {
            fputs("cannot make a worker of call_rcu\n", stderr);
            abort();
        }
        set_thread_call_rcu_data(workers[i]);
        rcu_thread_online();
        call_rcu(&heads[i], count_call);
        rcu_thread_offline();
    }
    set_thread_call_rcu_data(NULL);
    rcu_barrier();
    begin = now_ns();
    for (unsigned i = 0; i < count; i++)
        call_rcu_data_free(workers[i]);
    begin = now_ns() - begin;
    NAME(leave)();
    free(workers);
    free(heads);
    return begin;
}
