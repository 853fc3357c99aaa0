// The requirements of [saferecl.rcu] on behaviour.

#include <pthread.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <functional>
#include <memory>
#include <mutex>
#include <shared_mutex>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include "check.hpp"
#include "stillpoint/rcu.hpp"

namespace sp = stillpoint;

namespace {

struct object : sp::rcu_obj_base<object>, Witness {};

uint64_t grace_periods()
{
    return stats(sp::rcu_domain_handle()).grace_periods;
}

/// Waits until the library has begun to wait for what was scheduled before this call.
void let_it_wait(uint64_t before)
{
    while (grace_periods() <= before)
        sched_yield();
    for (int turn = 0; turn < 1000; turn++)
        sched_yield();
}

// rcu.gen.region, rcu.gen.order: a deleter runs after the end of each region that was open, and after all accesses in it.
void a_region_holds_up_what_is_retired_in_it()
{
    std::atomic<object *> link{new object};
    Gate is_in, may_go;
    std::atomic<bool> is_over{false};
    std::thread reader([&] {
        std::scoped_lock region(sp::rcu_default_domain());
        object *found = link.load(std::memory_order_acquire);
        is_in.open();
        may_go.pass();
        CHECK(found->there());
        is_over = true;
    });
    is_in.pass();
    const uint64_t before = grace_periods();
    link.exchange(nullptr)->retire();
    let_it_wait(before);
    CHECK(alive == 1 && !is_over);
    may_go.open();
    sp::rcu_barrier();
    CHECK(alive == 0 && is_over);
    reader.join();
}

// rcu.gen.later: regions that begin later hold nothing up. In this test a region is open at any time, and waits end nevertheless.
void later_regions_do_not_matter()
{
    std::atomic<bool> is_over{false};
    std::atomic<int> turn{0};
    const auto overlap = [&] {
        sp::rcu_domain &domain = sp::rcu_default_domain();
        domain.lock();
        turn.fetch_add(1);
        while (!is_over) {
            // The other thread has opened its region since this region began.
            const int before = turn.fetch_add(1);
            while (turn == before + 1 && !is_over)
                sched_yield();
            domain.unlock();
            domain.lock();
        }
        domain.unlock();
    };
    std::thread first(overlap), second(overlap);
    while (turn < 4)
        sched_yield();
    (new object)->retire();
    sp::rcu_synchronize();
    sp::rcu_barrier();
    CHECK(alive == 0);
    is_over = true;
    first.join();
    second.join();
}

// rcu.gen.nested: regions nest, and unlock closes the one that was opened last; the outermost one counts.
void regions_nest()
{
    Gate is_in, closed_inner, may_go;
    std::thread reader([&] {
        sp::rcu_domain &domain = sp::rcu_default_domain();
        domain.lock();
        domain.lock();
        CHECK(domain.try_lock());
        is_in.open();
        domain.unlock();
        domain.unlock();
        closed_inner.open();
        may_go.pass();
        domain.unlock();
        // And once more from the beginning.
        domain.lock();
        domain.unlock();
    });
    is_in.pass();
    closed_inner.pass();
    const uint64_t before = grace_periods();
    (new object)->retire();
    let_it_wait(before);
    CHECK(alive == 1);
    may_go.open();
    reader.join();
    sp::rcu_barrier();
    CHECK(alive == 0);
}

// rcu.domain.lockable, rcu.domain.try_lock
void the_standards_locks_work()
{
    sp::rcu_domain &domain = sp::rcu_default_domain();
    CHECK(domain.try_lock());
    domain.unlock();
    std::unique_lock<sp::rcu_domain> deferred(domain, std::defer_lock);
    CHECK(!deferred.owns_lock() && deferred.try_lock());
    deferred.unlock();
    std::mutex mutex;
    {
        std::scoped_lock both(mutex, domain);
    }
    std::lock(mutex, domain);
    mutex.unlock();
    domain.unlock();
    const std::lock_guard guard(domain);
    // Any number of threads may lock the domain at the same time, without a data race: stress.cc tests that.
}

// rcu.domain.default: all threads get the same domain.
void there_is_one_default_domain()
{
    sp::rcu_domain *others = nullptr;
    std::thread([&] { others = &sp::rcu_default_domain(); }).join();
    CHECK(others == &sp::rcu_default_domain());
}

// rcu.sync: blocks until the regions that were open are closed; their ends happen before its return.
void synchronize_waits_for_regions()
{
    Gate is_in, may_go, is_through;
    int written = 0;
    std::atomic<bool> is_over{false};
    std::thread reader([&] {
        std::scoped_lock region(sp::rcu_default_domain());
        is_in.open();
        may_go.pass();
        written = 7; // not atomic: the end of the region comes before the return
        is_over = true;
    });
    is_in.pass();
    std::thread waiter([&] {
        sp::rcu_synchronize();
        CHECK(is_over && written == 7);
        is_through.open();
    });
    for (int turn = 0; turn < 1000; turn++)
        sched_yield();
    CHECK(!is_over);
    may_go.open();
    is_through.pass();
    waiter.join();
    reader.join();
    sp::rcu_synchronize(sp::rcu_default_domain()); // no region is open: it returns
}

// rcu.barrier: blocks until what any thread scheduled before is evaluated; the evaluations happen before its return.
void barrier_waits_for_deleters()
{
    static int evaluated;
    evaluated = 0;
    for (int turn = 0; turn < 100; turn++)
        sp::rcu_retire(&evaluated, [](int *count) { ++*count; });
    // Another thread schedules a deleter, which happens before the barrier.
    std::thread([] { sp::rcu_retire(&evaluated, [](int *count) { ++*count; }); }).join();
    sp::rcu_barrier();
    CHECK(evaluated == 101);
    sp::rcu_barrier(sp::rcu_default_domain()); // nothing is scheduled
}

// rcu.barrier.not_sync: with nothing scheduled, a barrier waits for no region, not even for one of its own thread.
void barrier_is_no_synchronize()
{
    Gate is_in, may_go;
    std::thread reader([&] {
        std::scoped_lock region(sp::rcu_default_domain());
        is_in.open();
        may_go.pass();
    });
    is_in.pass();
    sp::rcu_barrier();
    {
        std::scoped_lock region(sp::rcu_default_domain());
        sp::rcu_barrier();
    }
    may_go.open();
    reader.join();
}

// rcu.base.retire, rcu.base.address: d is moved into the object, and called with the address of the whole object, once.
struct counted {
    int *calls = nullptr;
    std::unique_ptr<int> state;

    template <class T>
    void operator()(T *found) const;
};

struct at_front {
    virtual ~at_front() = default;
    long before = 1;
};

struct in_the_middle : at_front, sp::rcu_obj_base<in_the_middle, counted>, Witness {
    long after = 2;
};

in_the_middle *expected;

template <class T>
void counted::operator()(T *found) const
{
    CHECK(found == expected && found->before == 1 && found->after == 2 && state && *state == 5);
    ++*calls;
    delete found;
    CHECK(*state == 5); // the deleter outlives the object that it was in
}

void the_deleter_gets_the_object()
{
    int calls = 0;
    expected = new in_the_middle;
    expected->retire(counted{&calls, std::make_unique<int>(5)});
    sp::rcu_barrier();
    CHECK(calls == 1 && alive == 0);
}

// rcu.base.copy: a copy of an object is another object, also after the first one was retired.
void a_copy_is_retired_by_itself()
{
    object *first = new object;
    object *copy = new object(*first);
    first->retire();
    *copy = object();
    sp::rcu_barrier();
    CHECK(alive == 1 && copy->there());
    copy->retire();
    sp::rcu_barrier();
    CHECK(alive == 0);
}

// rcu.retire: any object can be retired; d is initialized from std::move(d), and is destroyed with its node.
void anything_can_be_retired()
{
    struct unrelated : Witness {};
    sp::rcu_retire(new unrelated);
    sp::rcu_retire(new object, [](object *found) { delete found; }, sp::rcu_default_domain());
    std::shared_ptr<int> shared = std::make_shared<int>(3);
    sp::rcu_retire(shared.get(), [shared](int *found) { CHECK(*found == 3); });
    sp::rcu_barrier();
    CHECK(alive == 0 && shared.use_count() == 1);
}

#if defined(__cpp_exceptions)
// rcu.retire.throws: rcu_retire throws what the initialization of the deleter throws, and then schedules nothing.
struct throws {
    throws() = default;
    throws(throws &&) { throw std::runtime_error("no"); }
    void operator()(int *) const { CHECK(false); }
};

void a_deleter_that_throws_schedules_nothing()
{
    int number = 1;
    bool is_thrown = false;
    try {
        sp::rcu_retire<int, throws>(&number, throws());
    } catch (const std::runtime_error &) {
        is_thrown = true;
    }
    CHECK(is_thrown);
    sp::rcu_barrier();
}
#endif

// rcu.gen.concurrent: deleters may lock, retire and synchronize; none of them runs within a call by this thread.
void deleters_use_the_domain()
{
    static std::atomic<int> depth;
    depth = 0;
    struct again : sp::rcu_obj_base<again>, Witness {
        ~again()
        {
            std::scoped_lock region(sp::rcu_default_domain());
            if (++depth < 5)
                (new again)->retire();
        }
    };
    (new again)->retire();
    while (depth < 5)
        sched_yield();
    sp::rcu_retire(&depth, [](std::atomic<int> *) { sp::rcu_synchronize(); });
    sp::rcu_barrier();
    CHECK(alive == 0);
    // A lock that the deleter takes may be held across retire.
    static std::mutex mutex;
    {
        std::scoped_lock held(mutex);
        for (int turn = 0; turn < 1000; turn++)
            sp::rcu_retire(&mutex, [](std::mutex *found) { std::scoped_lock inside(*found); });
    }
    sp::rcu_barrier();
    // The barrier would wait for itself. It reports that, and returns.
    static std::string said;
    still_on_report([](const char *report, void *) noexcept { said = report; }, nullptr);
    sp::rcu_retire(&mutex, [](std::mutex *) { sp::rcu_barrier(); });
    sp::rcu_barrier();
    CHECK(said.find("a deleter cannot wait for deleters") != std::string::npos);
    still_on_report(nullptr, nullptr);
}

// rcu.threads: any thread is registered by its first lock, even in its last destructors; a region that is left open ends with the thread.
uint64_t other_readers;

struct Late {
    ~Late()
    {
        std::scoped_lock region(sp::rcu_default_domain());
        CHECK(stats(sp::rcu_domain_handle()).readers == other_readers + 1); // with this thread
        (new object)->retire();
    }
};

pthread_key_t late_key;

void any_thread_at_any_time()
{
    other_readers = stats(sp::rcu_domain_handle()).readers;
    CHECK(pthread_key_create(&late_key, [](void *) { Late().~Late(); }) == 0);
    for (int turn = 0; turn < 50; turn++) {
        std::thread([] {
            thread_local Late late;
            static_cast<void>(late);
            pthread_setspecific(late_key, &late_key);
            sp::rcu_default_domain().lock();
            sp::rcu_default_domain().lock();
            // left open
        }).join();
        sp::rcu_barrier();
    }
    sp::rcu_synchronize();
    CHECK(alive == 0);
    CHECK(stats(sp::rcu_domain_handle()).readers == other_readers);
}

// Beyond the standard: children of fork.
void a_child_goes_on()
{
    Gate is_in, may_go;
    std::thread reader([&] {
        std::scoped_lock region(sp::rcu_default_domain());
        is_in.open();
        may_go.pass();
    });
    is_in.pass();
    const uint64_t before = grace_periods();
    (new object)->retire();
    let_it_wait(before);
    const pid_t child = fork();
    CHECK(child >= 0);
    if (child == 0) {
        alarm(60);
        sp::rcu_synchronize(); // does not wait for the parent's reader
        sp::rcu_barrier();
        CHECK(alive == 0);
        (new object)->retire(); // a thread of the child deletes it
        while (alive != 0)
            sched_yield();
        std::scoped_lock region(sp::rcu_default_domain());
        _exit(0);
    }
    int status = 0;
    CHECK(waitpid(child, &status, 0) == child && status == 0);
    CHECK(alive == 1);
    may_go.open();
    reader.join();
    sp::rcu_barrier();
    CHECK(alive == 0);
}

// A deleter may fork: in the child, the thread that runs deleters continues.
void a_deleter_forks()
{
    static std::atomic<int> status;
    status = -1;
    sp::rcu_retire(&status, [](std::atomic<int> *found) {
        const pid_t child = fork();
        CHECK(child >= 0);
        if (child == 0) {
            alarm(60);
            {
                std::scoped_lock region(sp::rcu_default_domain());
                (new object)->retire();
            }
            sp::rcu_synchronize();
            _exit(alive == 1 ? 0 : 1);
        }
        int answer = 0;
        CHECK(waitpid(child, &answer, 0) == child);
        *found = answer;
    });
    sp::rcu_barrier();
    CHECK(status == 0);
}

// A thread that waits for itself is reported. It keeps waiting, because the wait must not return early.
void waiting_for_oneself_is_said()
{
    for (const bool is_barrier : {false, true}) {
        int said[2];
        CHECK(pipe(said) == 0);
        const pid_t child = fork();
        CHECK(child >= 0);
        if (child == 0) {
            close(said[0]);
            static int told;
            told = said[1];
            still_on_report(
                [](const char *report, void *) noexcept {
                    const std::string line = std::string(report) + "\n";
                    (void)!write(told, line.data(), line.size());
                },
                nullptr);
            std::scoped_lock region(sp::rcu_default_domain());
            (new object)->retire();
            is_barrier ? sp::rcu_barrier() : sp::rcu_synchronize();
            _exit(1);
        }
        close(said[1]);
        std::string text;
        for (char next; text.find('\n') == std::string::npos && read(said[0], &next, 1) == 1;)
            text += next;
        close(said[0]);
        CHECK(text.find("waits for itself") != std::string::npos);
        int status = 0;
        CHECK(kill(child, SIGKILL) == 0 && waitpid(child, &status, 0) == child && WIFSIGNALED(status));
    }
}

/// Its destructor runs after those of the main thread's thread-locals.
struct AtExit {
    ~AtExit()
    {
        {
            std::scoped_lock region(sp::rcu_default_domain());
            (new object)->retire();
        }
        sp::rcu_barrier();
        CHECK(alive == 0);
    }
} at_exit;

} // namespace

int main()
{
    a_region_holds_up_what_is_retired_in_it();
    later_regions_do_not_matter();
    regions_nest();
    the_standards_locks_work();
    there_is_one_default_domain();
    synchronize_waits_for_regions();
    barrier_waits_for_deleters();
    barrier_is_no_synchronize();
    the_deleter_gets_the_object();
    a_copy_is_retired_by_itself();
    anything_can_be_retired();
#if defined(__cpp_exceptions)
    a_deleter_that_throws_schedules_nothing();
#endif
    deleters_use_the_domain();
    any_thread_at_any_time();
    a_child_goes_on();
    a_deleter_forks();
    waiting_for_oneself_is_said();
}
