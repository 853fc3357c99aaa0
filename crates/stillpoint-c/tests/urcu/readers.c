/* Tests of readers: registration, sections, quiescent states, waits, signal handlers. */
#include "flavour.h"

#include <signal.h>

/* Whether a grace period that begins now is over soon. A worker may hold it up for a moment; a thread in a section holds it up for long. */
static bool is_free(void)
{
    struct urcu_gp_poll_state state = start_poll_synchronize_rcu();
    for (int round = 0; round < 100; round++)
        if (poll_state_synchronize_rcu(state))
            return true;
    return false;
}

static uint64_t readers(void)
{
    struct still_domain *domain = still_urcu_domain(FLAVOUR);
    struct still_stats stats;
    memset(&stats, 0, sizeof stats);
    stats.size = sizeof stats;
    CHECK(domain != NULL && still_domain_stats(domain, &stats) == 0 && still_domain_free(domain) == 0);
    return stats.readers;
}

static void *synchronizes(void *argument)
{
    (void)argument;
    synchronize_rcu();
    return NULL;
}

static void wait_elsewhere(void)
{
    CHECK(pthread_join(started(synchronizes, NULL), NULL) == 0);
}

static void *forgets(void *argument)
{
    (void)argument;
    rcu_register_thread();
    rcu_read_lock();
    rcu_read_lock();
    /* The thread ends in a section, and is still registered. */
    return NULL;
}

#ifndef FLAVOUR_QSBR
static void sections(void)
{
    CHECK(rcu_read_ongoing() == 0);
    rcu_read_lock();
    CHECK(rcu_read_ongoing());
    rcu_read_lock();
    rcu_read_unlock();
    CHECK(rcu_read_ongoing());
    struct urcu_gp_poll_state state = start_poll_synchronize_rcu();
    CHECK(!poll_state_synchronize_rcu(state));
    rcu_read_unlock();
    CHECK(!rcu_read_ongoing());
    CHECK(poll_state_synchronize_rcu(state));
}
#endif

static void quiescent_states(void)
{
#ifdef FLAVOUR_QSBR
    CHECK(rcu_read_ongoing());
    struct urcu_gp_poll_state state = start_poll_synchronize_rcu();
    rcu_read_lock();
    rcu_read_unlock();
    CHECK(!poll_state_synchronize_rcu(state));
    rcu_quiescent_state();
    CHECK(poll_state_synchronize_rcu(state));
    state = start_poll_synchronize_rcu();
    rcu_thread_offline();
    rcu_thread_offline();
    CHECK(!rcu_read_ongoing());
    CHECK(poll_state_synchronize_rcu(state));
    wait_elsewhere();
    rcu_thread_online();
    rcu_thread_online();
    CHECK(rcu_read_ongoing());
    CHECK(!is_free());
    /* As in liburcu, a quiescent state brings a thread online. */
    rcu_thread_offline();
    rcu_quiescent_state();
    CHECK(rcu_read_ongoing() && !is_free());
    rcu_quiescent_state();
    rcu_thread_offline();
    rcu_quiescent_state();
    CHECK(rcu_read_ongoing());
#else
    rcu_quiescent_state();
    rcu_thread_offline();
    rcu_thread_online();
    sections();
#endif
}

static void registration(void)
{
    rcu_init();
    wait_elsewhere();
    synchronize_rcu();
    rcu_register_thread();
    CHECK(rcu_read_ongoing() == IS_QSBR);
    rcu_register_thread();
    quiescent_states();
    synchronize_rcu();
    CHECK(rcu_read_ongoing() == IS_QSBR);
    rcu_unregister_thread();
    rcu_unregister_thread();
    CHECK(rcu_read_ongoing() == 0);
    AWAIT(is_free());
    /* The thread is not registered, so this does nothing. */
    rcu_quiescent_state();
    rcu_thread_offline();
    rcu_thread_online();
    CHECK(rcu_read_ongoing() == 0);
    AWAIT(is_free());
    rcu_read_unlock();
    CHECK(rcu_read_ongoing() == 0);
#ifndef FLAVOUR_QSBR
    /* The first section registers it. */
    sections();
    sections();
#endif
    rcu_unregister_thread();

    struct holder holder;
    hold(&holder);
    CHECK(!is_free());
    struct urcu_gp_poll_state state = start_poll_synchronize_rcu();
    let_go(&holder);
    CHECK(poll_state_synchronize_rcu(state));

    for (int round = 0; round < 20; round++)
        CHECK(pthread_join(started(forgets, NULL), NULL) == 0);
    synchronize_rcu();
    AWAIT(is_free());
    CHECK(readers() <= 33);
}

static pthread_key_t early, late;
static int ends;

/* A key destructor of the program. The thread is still a reader here, also in the second round. */
static void ends_later(void *value)
{
    pthread_key_t *key = (pthread_key_t *)value;
    CHECK(rcu_read_ongoing());
    if (!IS_QSBR) {
        struct urcu_gp_poll_state state = start_poll_synchronize_rcu();
        CHECK(!poll_state_synchronize_rcu(state));
    }
    if (ADD(ends, 1) <= 2)
        CHECK(pthread_setspecific(*key, value) == 0);
}

static void *ends_in_section(void *argument)
{
    (void)argument;
    rcu_register_thread();
    rcu_read_lock();
    CHECK(pthread_setspecific(early, &early) == 0 && pthread_setspecific(late, &late) == 0);
    return NULL;
}

static pthread_key_t again;

/* A key destructor that reads in the third round, when the thread is no longer a reader. */
static void reads_thrice(void *value)
{
    static __thread int round;
    rcu_read_lock();
    rcu_read_unlock();
    if (++round < 3)
        CHECK(pthread_setspecific(again, value) == 0);
}

static void *ends_thrice(void *argument)
{
    rcu_register_thread();
    CHECK(pthread_setspecific(again, argument) == 0);
    return NULL;
}

static void late_readers(void)
{
    CHECK(pthread_key_create(&again, reads_thrice) == 0);
    uint64_t before = readers();
    for (int each = 0; each < 20; each++)
        CHECK(pthread_join(started(ends_thrice, &again), NULL) == 0);
    CHECK(readers() <= before);
}

static void ends_of_threads(void)
{
    CHECK(pthread_key_create(&early, ends_later) == 0);
    for (int each = 0; each < 40; each++)
        CHECK(pthread_key_create(&late, ends_later) == 0);
    CHECK(pthread_join(started(ends_in_section, NULL), NULL) == 0);
    CHECK(LOAD(ends) == 4);
    AWAIT(is_free());
}

static int handled, began;

static void handler(int signal)
{
    (void)signal;
    int before = rcu_read_ongoing();
    rcu_read_lock();
    rcu_read_lock();
    CHECK(rcu_read_ongoing() || IS_QSBR);
    rcu_read_unlock();
    rcu_read_unlock();
    CHECK((rcu_read_ongoing() != 0) == (before != 0));
    ADD(handled, 1);
}

static void *interrupted(void *argument)
{
    (void)argument;
    rcu_register_thread();
    while (LOAD(handled) < 2000) {
        rcu_read_lock();
        rcu_read_lock();
        rcu_read_unlock();
        CHECK(rcu_read_ongoing());
        rcu_read_unlock();
        CHECK(rcu_read_ongoing() == IS_QSBR);
        rcu_quiescent_state();
        STORE(began, 1);
    }
    rcu_unregister_thread();
    return NULL;
}

static void handlers(void)
{
    struct sigaction action;
    memset(&action, 0, sizeof action);
    action.sa_handler = handler;
    CHECK(sigaction(SIGUSR1, &action, NULL) == 0);
    pthread_t thread = started(interrupted, NULL);
    AWAIT(LOAD(began));
    while (LOAD(handled) < 2000) {
        int before = LOAD(handled);
        CHECK(pthread_kill(thread, SIGUSR1) == 0);
        AWAIT(LOAD(handled) > before);
        synchronize_rcu();
    }
    CHECK(pthread_join(thread, NULL) == 0);
    AWAIT(is_free());
}

/* Pointers. */
static void pointers(void)
{
    static int first = 1, second = 2;
    int *place = NULL;
    rcu_assign_pointer(place, &first);
    CHECK(rcu_dereference(place) == &first);
    rcu_set_pointer(&place, NULL);
    CHECK(rcu_dereference(place) == NULL);
    CHECK(rcu_cmpxchg_pointer(&place, &first, &second) == NULL && place == NULL);
    CHECK(rcu_cmpxchg_pointer(&place, (int *)NULL, &second) == NULL && place == &second);
    CHECK(rcu_xchg_pointer(&place, &first) == &second && place == &first);
}

int main(void)
{
    registration();
    ends_of_threads();
    late_readers();
    handlers();
    pointers();
    CHECK(still_urcu_domain(4) == NULL && errno == EINVAL);
    rcu_register_thread();
    rcu_unregister_thread();
    return 0;
}
