/* A program of liburcu's, compiled against liburcu's headers without its inline readers, and linked with liburcu. It says whose library it
 * runs on. */
#ifdef FLAVOUR_QSBR
#include <urcu-qsbr.h>
#elif defined(FLAVOUR_BP)
#include <urcu-bp.h>
#else
#include <urcu.h> /* RCU_MB chooses between memb and mb */
#endif

#include <dlfcn.h>
#include <pthread.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>
#include <urcu/rculfhash.h>

#define CHECK(condition)                                                                                   \
    do {                                                                                                   \
        if (!(condition)) {                                                                                \
            fprintf(stderr, "%s:%d: not so: %s\n", __FILE__, __LINE__, #condition);                        \
            exit(1);                                                                                       \
        }                                                                                                  \
    } while (0)

enum { ROUNDS = 300, ALIVE = 0x600d };

struct object {
    struct rcu_head head;
    struct cds_lfht_node node;
    int state;
};

static struct object *current;
static int stop, freed, reads;

static void *make(void)
{
    struct object *object = calloc(1, sizeof *object);
    CHECK(object != NULL);
    object->state = ALIVE;
    return object;
}

static void destroy(void *argument)
{
    struct object *object = argument;
    object->state = 0;
    free(object);
    __atomic_add_fetch(&freed, 1, __ATOMIC_SEQ_CST);
}

static void called(struct rcu_head *head)
{
    destroy(caa_container_of(head, struct object, head));
}

static void *reader(void *unused)
{
    (void)unused;
    rcu_register_thread();
    while (!__atomic_load_n(&stop, __ATOMIC_SEQ_CST)) {
        rcu_read_lock();
        CHECK(rcu_read_ongoing());
        struct object *object = rcu_dereference(current);
        CHECK(object->state == ALIVE);
        sched_yield();
        CHECK(object->state == ALIVE);
        rcu_read_unlock();
        rcu_quiescent_state();
        __atomic_add_fetch(&reads, 1, __ATOMIC_SEQ_CST);
    }
    rcu_thread_offline();
    rcu_thread_online();
    rcu_unregister_thread();
    return NULL;
}

int main(void)
{
    const char *(*version)(void) = (const char *(*)(void))dlsym(RTLD_DEFAULT, "still_version");
    printf("%s\n", version == NULL ? "on liburcu" : "on stillpoint");
#ifndef FLAVOUR_QSBR
    rcu_init();
#endif
    rcu_register_thread();
    CHECK(rcu_defer_register_thread() == 0);
    CHECK(create_all_cpu_call_rcu_data(0) == 0);
    current = make();
    pthread_t threads[2];
    for (int i = 0; i < 2; i++)
        CHECK(pthread_create(&threads[i], NULL, reader, NULL) == 0);
    for (int round = 0; round < ROUNDS; round++) {
        struct object *old = rcu_xchg_pointer(&current, make());
        if (round % 3 == 0) {
            synchronize_rcu();
            destroy(old);
        } else if (round % 3 == 1) {
            call_rcu(&old->head, called);
        } else {
            defer_rcu(destroy, old);
        }
        rcu_quiescent_state();
        if (round % 50 == 0)
            rcu_barrier();
    }
    rcu_defer_barrier();
    rcu_barrier();
    CHECK(freed == ROUNDS);
    rcu_thread_offline();
    while (__atomic_load_n(&reads, __ATOMIC_SEQ_CST) < 1000)
        sched_yield();
    __atomic_store_n(&stop, 1, __ATOMIC_SEQ_CST);
    for (int i = 0; i < 2; i++)
        CHECK(pthread_join(threads[i], NULL) == 0);
    rcu_thread_online();

    /* A hash table of liburcu, which uses the table of the flavour's functions. */
    struct cds_lfht *table = cds_lfht_new(1, 1, 0, CDS_LFHT_AUTO_RESIZE | CDS_LFHT_ACCOUNTING, NULL);
    CHECK(table != NULL);
    for (unsigned long key = 0; key < 200; key++) {
        struct object *object = make();
        rcu_read_lock();
        cds_lfht_add(table, key, &object->node);
        rcu_read_unlock();
    }
    struct cds_lfht_iter iter;
    struct object *object;
    rcu_read_lock();
    cds_lfht_for_each_entry(table, &iter, object, node) {
        CHECK(cds_lfht_del(table, &object->node) == 0);
        call_rcu(&object->head, called);
    }
    rcu_read_unlock();
    rcu_barrier();
    CHECK(freed == ROUNDS + 200);
    rcu_thread_offline();
    CHECK(cds_lfht_destroy(table, NULL) == 0);
    rcu_thread_online();

    /* A child goes on alone. */
    call_rcu_before_fork();
    pid_t child = fork();
    CHECK(child >= 0);
    if (child == 0) {
        call_rcu_after_fork_child();
        struct object *old = rcu_xchg_pointer(&current, make());
        call_rcu(&old->head, called);
        rcu_barrier();
        _exit(freed == ROUNDS + 201 ? 0 : 1);
    }
    call_rcu_after_fork_parent();
    int status = 1;
    CHECK(waitpid(child, &status, 0) == child && status == 0);
    free_all_cpu_call_rcu_data();
    rcu_defer_unregister_thread();
    rcu_unregister_thread();
    return 0;
}
