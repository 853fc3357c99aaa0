// Difficult types and threads: overloaded operators, cancelled threads, key destructors in late rounds.

#include <pthread.h>
#include <semaphore.h>
#include <unistd.h>

#include <atomic>
#include <mutex>
#include <thread>

#include "check.hpp"
#include "stillpoint/hazard_pointer.hpp"
#include "stillpoint/rcu.hpp"

namespace sp = stillpoint;

namespace {

/// A type whose & does not return its address, and whose comma operator must not be used.
struct evil {
    evil *operator&() const
    {
        CHECK(false);
        return nullptr;
    }
    template <class T>
    void operator,(T &&) const = delete;
};

template <class T>
struct evil_deleter : evil {
    void operator()(T *found) const { delete found; }
};

struct evil_rcu : sp::rcu_obj_base<evil_rcu, evil_deleter<evil_rcu>>, Witness {
    evil_rcu *operator&() const
    {
        CHECK(false);
        return nullptr;
    }
};

struct evil_hazard : sp::hazard_pointer_obj_base<evil_hazard, evil_deleter<evil_hazard>>, Witness {
    evil_hazard *operator&() const
    {
        CHECK(false);
        return nullptr;
    }
};

// Addresses are taken by std::addressof.
void operators_may_be_overloaded()
{
    (new evil_rcu)->retire();
    sp::rcu_retire(new evil_rcu, evil_deleter<evil_rcu>());
    std::atomic<evil_hazard *> link{new evil_hazard};
    sp::hazard_pointer hazard = sp::make_hazard_pointer();
    hazard.protect(link)->retire();
    sp::hazard_pointer_clean_up();
    CHECK(alive >= 1);
    hazard.reset_protection();
    sp::rcu_barrier();
    sp::hazard_pointer_clean_up();
    CHECK(alive == 0);
}

struct by_rcu : sp::rcu_obj_base<by_rcu>, Witness {};
struct by_hazard : sp::hazard_pointer_obj_base<by_hazard>, Witness {};

/// Runs a function on a thread that is cancelled meanwhile, again and again.
template <class F>
void cancelled(F function)
{
    struct State {
        F function;
        sem_t there;
        std::atomic<bool> is_whole{true};
    };
    for (int turn = 0; turn < 200; turn++) {
        State state{function, {}, {true}};
        CHECK(sem_init(&state.there, 0, 0) == 0);
        pthread_t thread;
        CHECK(pthread_create(&thread, nullptr, [](void *value) -> void * {
            State *const own = static_cast<State *>(value);
            sem_post(&own->there);
            for (;;) {
                own->is_whole = false;
                own->function();
                own->is_whole = true;
                pthread_testcancel();
            }
        }, &state) == 0);
        while (sem_wait(&state.there) != 0) {
        }
        usleep(static_cast<useconds_t>(turn * 5));
        CHECK(pthread_cancel(thread) == 0);
        void *result;
        CHECK(pthread_join(thread, &result) == 0 && result == PTHREAD_CANCELED && state.is_whole);
        CHECK(sem_destroy(&state.there) == 0);
    }
}

// No member function is a cancellation point, so a thread is cancelled only between calls.
void threads_are_cancelled_between_calls()
{
    cancelled([] {
        sp::rcu_default_domain().lock();
        (new by_rcu)->retire();
        sp::rcu_default_domain().unlock();
    });
    cancelled([] { sp::rcu_synchronize(); });
    cancelled([] {
        (new by_rcu)->retire();
        sp::rcu_barrier();
    });
    cancelled([] {
        sp::hazard_pointer hazard = sp::make_hazard_pointer();
        std::atomic<by_hazard *> link{new by_hazard};
        hazard.protect(link)->retire();
        hazard.reset_protection();
        sp::hazard_pointer_clean_up();
    });
    sp::rcu_barrier();
    sp::hazard_pointer_clean_up();
    CHECK(alive == 0);
}

// Deleters may reach cancellation points on any thread. A program could find the thread that runs them, and cancel it.
void a_deleter_is_not_cancelled()
{
    static std::atomic<bool> is_over;
    is_over = false;
    sp::rcu_retire(&is_over, [](std::atomic<bool> *found) {
        CHECK(pthread_cancel(pthread_self()) == 0);
        pthread_testcancel();
        usleep(1); // another cancellation point
        *found = true;
    });
    sp::rcu_barrier();
    CHECK(is_over);
    (new by_rcu)->retire(); // the thread still runs deleters
    while (alive != 0)
        sched_yield();
}

pthread_key_t late_key;
std::atomic<int> rounds{0};

void use_again(void *value)
{
    {
        std::scoped_lock region(sp::rcu_default_domain());
        (new by_rcu)->retire();
        sp::hazard_pointer hazard = sp::make_hazard_pointer();
        std::atomic<by_hazard *> link{new by_hazard};
        hazard.protect(link)->retire();
    }
    if (++rounds % 4 != 0)
        CHECK(pthread_setspecific(late_key, value) == 0);
}

// The program's key destructors use the domains in each round, even after the thread's reader has ended.
void keys_come_after_the_end()
{
    for (int turn = 0; turn < 100; turn++) {
        rounds = 0;
        std::thread([] {
            CHECK(pthread_setspecific(late_key, &rounds) == 0);
            sp::rcu_default_domain().lock(); // left open
        }).join();
        CHECK(rounds == 4);
        sp::rcu_synchronize();
    }
    sp::rcu_barrier();
    sp::hazard_pointer_clean_up();
    CHECK(alive == 0);
}

} // namespace

int main()
{
    alarm(300);
    CHECK(pthread_key_create(&late_key, use_again) == 0);
    operators_may_be_overloaded();
    threads_are_cancelled_between_calls();
    a_deleter_is_not_cancelled();
    keys_come_after_the_end();
}
