/* For whom a thread that waits issues a fence: readers of other threads that have had a section, and none since the grace period began. In
 * qsbr, for nobody. */
#include "flavour.h"

static int wanted, done, has_fences;
static struct still_domain *domain;

static void *acts(void *argument)
{
    for (int step = 1; step <= 7; step++) {
        AWAIT(LOAD(wanted) >= step);
        switch (step) {
        case 1:
            rcu_register_thread();
            rcu_thread_offline();
            break;
        case 2:
        case 4:
            rcu_thread_online();
            rcu_read_lock();
            CHECK(rcu_read_ongoing());
            rcu_read_lock();
            rcu_read_unlock();
            CHECK(rcu_read_ongoing());
            break;
        case 3:
        case 5:
            rcu_read_unlock();
            rcu_quiescent_state();
            CHECK(rcu_read_ongoing() == IS_QSBR);
            rcu_thread_offline();
            CHECK(!rcu_read_ongoing());
            break;
        case 6:
            rcu_quiescent_state(); /* in qsbr, this brings the thread online */
            CHECK(rcu_read_ongoing() == IS_QSBR);
            rcu_unregister_thread();
            break;
        default:
            rcu_read_lock(); /* in flavours with sections, this registers the thread */
            CHECK(rcu_read_ongoing() == !IS_QSBR);
            rcu_read_unlock();
            rcu_quiescent_state();
            CHECK(!rcu_read_ongoing());
        }
        STORE(done, step);
    }
    AWAIT(LOAD(wanted) > 7);
    return argument;
}

/* Lets the other thread make its next step. */
static void there(void)
{
    int step = ADD(wanted, 1);
    AWAIT(LOAD(done) == step);
}

static void nothing(void)
{
}

static uint64_t heavy_fences(void)
{
    struct still_stats stats;
    memset(&stats, 0, sizeof stats);
    stats.size = sizeof stats;
    CHECK(still_domain_stats(domain, &stats) == 0);
    return stats.heavy_fences;
}

/* Starts a grace period, calls the function, and returns how many fences end the grace period. */
static uint64_t fences_after(void (*step)(void))
{
    uint64_t token = still_start(domain);
    step();
    uint64_t before = heavy_fences();
    CHECK(still_check(domain, token) == 1);
    return heavy_fences() - before;
}

static int is_held_up(void)
{
    return still_check(domain, still_start(domain)) == 0;
}

int main(void)
{
    struct still_domain_options options = STILL_DOMAIN_OPTIONS_INIT;
    options.mode = STILL_MODE_ASYMMETRIC;
    int answer = still_urcu_configure(FLAVOUR, &options);
    CHECK(answer == 0 || answer == -EOPNOTSUPP || FLAVOUR == STILL_URCU_MB);
    has_fences = answer == 0 && !IS_QSBR;
    domain = still_urcu_domain(FLAVOUR);
    CHECK(domain != NULL);
    uint64_t one = has_fences ? 1 : 0;
    pthread_t thread = started(acts, NULL);
    CHECK(fences_after(there) == 0); /* it has registered, and had no section */
    CHECK(fences_after(nothing) == 0);
    for (int times = 0; times < 2; times++) {
        there();
        CHECK(is_held_up());
        CHECK(fences_after(there) == 0); /* the end of the section reports */
        CHECK(fences_after(nothing) == one);
    }
    there();
    /* In bp, a thread stays registered until it ends. */
    CHECK(fences_after(nothing) == (FLAVOUR == STILL_URCU_BP ? one : 0));
    there();
    CHECK(fences_after(nothing) == one);
    ADD(wanted, 1);
    CHECK(pthread_join(thread, NULL) == 0);
    CHECK(fences_after(nothing) == 0);
    CHECK(still_domain_free(domain) == 0);
    return 0;
}
