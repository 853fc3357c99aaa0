/*
 * Four threads read settings while another thread replaces them. Written for liburcu; docs/guide/from-liburcu.md moves it to
 * stillpoint in three steps:
 *
 *   1  unchanged
 *   2  a stall hook prints which thread holds up the writer
 *   3  each reader holds up one object instead of everything
 */
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include <urcu.h>

#ifndef STEP
#define STEP 1
#endif

#if STEP >= 2
#include <stillpoint.h>
#include <stillpoint/urcu.h>
#endif

struct settings {
#if STEP < 3
    struct rcu_head head;
#else
    struct still_object_callback head;
#endif
    int version;
    int twice;
};

static struct settings *current;
static int stop, reads, freed;

#if STEP < 3
static void free_settings(struct rcu_head *head)
#else
static void free_settings(struct still_callback *head) STILL_NOEXCEPT
#endif
{
    struct settings *settings = (struct settings *)(void *)head;
    settings->twice = -1;
    free(settings);
    __atomic_add_fetch(&freed, 1, __ATOMIC_RELAXED);
}

static struct settings *make(int version)
{
    struct settings *settings = (struct settings *)malloc(sizeof *settings);
    if (settings == NULL)
        abort();
    settings->version = version;
    settings->twice = 2 * version;
    return settings;
}

static void look(const struct settings *settings)
{
    if (settings->twice != 2 * settings->version)
        abort();
    __atomic_add_fetch(&reads, 1, __ATOMIC_RELAXED);
}

#if STEP >= 2
static struct still_domain *domain;

static void stalled(const struct still_stall *stall, void *context) STILL_NOEXCEPT
{
    (void)context;
    fprintf(stderr, "thread %u (%s) holds up %llu objects\n", stall->thread, stall->name, (unsigned long long)stall->objects);
}
#endif

static void *reader(void *argument)
{
    (void)argument;
#if STEP < 3
    rcu_register_thread();
    while (!__atomic_load_n(&stop, __ATOMIC_RELAXED)) {
        rcu_read_lock();
        look(rcu_dereference(current));
        rcu_read_unlock();
    }
    rcu_unregister_thread();
#else
    struct still_reader *reader = still_reader_new(domain);
    if (reader == NULL)
        abort();
    while (!__atomic_load_n(&stop, __ATOMIC_RELAXED)) {
        struct still_protected held = still_protect(reader, &current);
        look((const struct settings *)held.object);
        still_release(held);
    }
    still_reader_free(reader);
#endif
    return NULL;
}

int main(void)
{
#if STEP >= 2
    struct still_domain_options options = {.size = sizeof options, .stall_after = 1000000000, .on_stall = stalled};
    if (still_urcu_configure(STILL_URCU_MEMB, &options) != 0 || (domain = still_urcu_domain(STILL_URCU_MEMB)) == NULL)
        abort();
#endif
#if STEP >= 3
    struct still_queue *queue = still_queue_new(domain);
    if (queue == NULL)
        abort();
#endif
    rcu_register_thread();
    current = make(0);
    pthread_t threads[4];
    for (int each = 0; each < 4; each++)
        if (pthread_create(&threads[each], NULL, reader, NULL) != 0)
            abort();
    enum { VERSIONS = 10000 };
    for (int version = 1; version <= VERSIONS || __atomic_load_n(&reads, __ATOMIC_RELAXED) == 0; version++) {
        struct settings *before = rcu_xchg_pointer(&current, make(version));
#if STEP < 3
        call_rcu(&before->head, free_settings);
#else
        if (still_call_object(queue, &before->head, before, free_settings) != 0)
            abort();
        still_queue_poll(queue, 64);
#endif
    }
    __atomic_store_n(&stop, 1, __ATOMIC_RELAXED);
    for (int each = 0; each < 4; each++)
        pthread_join(threads[each], NULL);
#if STEP < 3
    rcu_barrier();
#else
    while (still_queue_pending(queue) > 0)
        still_queue_poll(queue, 64);
    still_queue_free(queue);
#endif
#if STEP >= 2
    still_domain_free(domain);
#endif
    printf("freed %d of %d versions, read %d times\n", freed, current->version, reads);
    int rest = current->version - freed;
    free(current);
    rcu_unregister_thread();
    return rest != 0;
}
