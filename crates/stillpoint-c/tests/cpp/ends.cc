// Threads that end in a process that has used up its keys, and what the library's thread inherits from the first thread that retires.

#include <pthread.h>
#include <sched.h>
#include <unistd.h>

#include <atomic>
#include <thread>

#include "check.hpp"
#include "stillpoint/rcu.hpp"

namespace sp = stillpoint;

namespace {

// The thread that runs deleters has the policy SCHED_OTHER, and the CPUs with which the process began.
void the_worker_is_nobodys_child()
{
    static cpu_set_t before;
    CHECK(sched_getaffinity(0, sizeof before, &before) == 0);
    static std::atomic<bool> is_there;
    is_there = false;
    std::thread([] {
        cpu_set_t one;
        CPU_ZERO(&one);
        for (unsigned cpu = 0; CPU_COUNT(&one) == 0; cpu++)
            if (CPU_ISSET(cpu, &before))
                CPU_SET(cpu, &one);
        CHECK(sched_setaffinity(0, sizeof one, &one) == 0);
        sched_param param{};
        CHECK(sched_setscheduler(0, SCHED_BATCH, &param) == 0);
        sp::rcu_retire(&is_there, [](std::atomic<bool> *found) {
            cpu_set_t own;
            CHECK(sched_getaffinity(0, sizeof own, &own) == 0 && CPU_EQUAL(&own, &before));
            CHECK(sched_getscheduler(0) == SCHED_OTHER);
            *found = true;
        });
    }).join();
    sp::rcu_barrier();
    CHECK(is_there);
}

// The library has made its key before the program uses up all keys.
void a_region_ends_with_its_thread_without_keys()
{
    std::thread([] {
        sp::rcu_default_domain().lock();
        sp::rcu_default_domain().lock();
    }).join();
    sp::rcu_synchronize();
}

} // namespace

int main()
{
    pthread_key_t key;
    while (pthread_key_create(&key, nullptr) == 0) {
    }
    alarm(120);
    the_worker_is_nobodys_child();
    a_region_ends_with_its_thread_without_keys();
}
