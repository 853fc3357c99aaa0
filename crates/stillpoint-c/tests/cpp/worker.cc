// Tests which thread runs deleters, and what a retirement calls. The program can refuse to start threads, and counts allocations.

#include <dlfcn.h>
#include <errno.h>
#include <pthread.h>
#include <signal.h>

#include <atomic>
#include <mutex>
#include <thread>
#include <vector>

#include "check.hpp"
#include "stillpoint/hazard_pointer.hpp"
#include "stillpoint/rcu.hpp"

namespace sp = stillpoint;

namespace {

std::atomic<bool> threads_are_refused{true};
std::atomic<int> threads_asked_for{0};
thread_local unsigned long allocations, locks;

struct by_rcu : sp::rcu_obj_base<by_rcu>, Witness {};
struct by_hazard : sp::hazard_pointer_obj_base<by_hazard>, Witness {};

/// The function of libc that a function of this program hides.
template <class F>
F *behind(const char *name)
{
    F *found = nullptr;
    void *const address = dlsym(RTLD_NEXT, name);
    static_assert(sizeof found == sizeof address);
    __builtin_memcpy(&found, &address, sizeof found);
    return found;
}

} // namespace

extern "C" {

int pthread_create(pthread_t *thread, const pthread_attr_t *attributes, void *(*start)(void *), void *value)
{
    static auto *const real = behind<decltype(pthread_create)>("pthread_create");
    ++threads_asked_for;
    return threads_are_refused ? EAGAIN : real(thread, attributes, start, value);
}

int pthread_mutex_lock(pthread_mutex_t *mutex)
{
    static auto *const real = behind<decltype(pthread_mutex_lock)>("pthread_mutex_lock");
    ++locks;
    return real(mutex);
}

void *__libc_malloc(size_t);

void *malloc(size_t bytes)
{
    ++allocations;
    return __libc_malloc(bytes);
}
}

namespace {

// If the thread cannot be started, barriers and some retirements run the deleters.
template <class T, class Retire, class Barrier>
void without_a_thread(Retire retire, Barrier barrier)
{
    threads_are_refused = true;
    const int asked = threads_asked_for;
    for (int turn = 0; turn < 100; turn++)
        retire(new T);
    CHECK(threads_asked_for == asked + 1); // not every retirement tries again
    barrier();
    CHECK(alive == 0);
    for (int turn = 0; turn < 5000; turn++)
        retire(new T);
    CHECK(threads_asked_for > asked + 5 && alive < 2000);
    barrier();
    threads_are_refused = false;
    for (int turn = 0; turn < 256; turn++)
        retire(new T);
    while (alive != 0) // the thread has been started now
        sched_yield();
    const int there = threads_asked_for;
    for (int turn = 0; turn < 1000; turn++)
        retire(new T);
    CHECK(threads_asked_for == there);
    barrier();
    CHECK(alive == 0);
}

// Neither kind of retire allocates, nor does a hazard pointer whose record is used again. None locks a mutex.
void nothing_is_allocated()
{
    std::vector<by_rcu *> first;
    std::vector<by_hazard *> second;
    for (int turn = 0; turn < 10000; turn++) {
        first.push_back(new by_rcu);
        second.push_back(new by_hazard);
    }
    sp::make_hazard_pointer();
    const unsigned long before = allocations, locked = locks;
    for (size_t turn = 0; turn < 10000; turn++) {
        first[turn]->retire();
        second[turn]->retire();
        sp::hazard_pointer hazard = sp::make_hazard_pointer();
    }
    CHECK(allocations == before && locks == locked);
    int number = 0;
    for (int turn = 0; turn < 1000; turn++)
        sp::rcu_retire(&number, [](int *count) { ++*count; });
    CHECK(allocations == before + 1000 && locks == locked); // rcu_retire allocates a node for each object
    sp::rcu_barrier();
    sp::hazard_pointer_clean_up();
    CHECK(alive == 0 && number == 1000);
}

// Deleters run on the library's thread, on which signals are blocked.
void deleters_run_elsewhere()
{
    static std::atomic<bool> is_done, is_blocked, is_here;
    static pthread_t here;
    here = pthread_self();
    sp::rcu_retire(&is_done, [](std::atomic<bool> *done) {
        sigset_t set;
        pthread_sigmask(SIG_BLOCK, nullptr, &set);
        is_blocked = sigismember(&set, SIGTERM) && sigismember(&set, SIGUSR1) && !sigismember(&set, SIGSEGV);
        is_here = pthread_equal(here, pthread_self()) != 0;
        *done = true;
    });
    while (!is_done)
        sched_yield();
    CHECK(is_blocked && !is_here);
}

} // namespace

int main()
{
    without_a_thread<by_rcu>([](by_rcu *found) { found->retire(); }, [] { sp::rcu_barrier(); });
    without_a_thread<by_hazard>([](by_hazard *found) { found->retire(); }, [] { sp::hazard_pointer_clean_up(); });
    nothing_is_allocated();
    deleters_run_elsewhere();
}
