// For ThreadSanitizer, which must report nothing if objects are retired (defect 0), and must report each defect (named by its number).
// What readers read is plain memory.
#include <mutex>
#include <thread>

#include "check.hpp"
#include "stillpoint/hazard_pointer.hpp"
#include "stillpoint/rcu.hpp"

namespace sp = stillpoint;

namespace {

int defect;

struct by_rcu : sp::rcu_obj_base<by_rcu> {
    int value = 1;
};

struct by_hazard : sp::hazard_pointer_obj_base<by_hazard> {
    int value = 1;
};

std::atomic<by_rcu *> region{new by_rcu};
std::atomic<by_hazard *> hazard{new by_hazard};

int read_region()
{
    std::scoped_lock lock(sp::rcu_default_domain());
    return region.load(std::memory_order_acquire)->value;
}

int read_hazard(sp::hazard_pointer &pointer)
{
    const int value = pointer.protect(hazard)->value;
    pointer.reset_protection();
    return value;
}

/// Reads both objects. Then tells the writer, by accesses that order nothing.
void reads(std::atomic<int> &rounds, const std::atomic<bool> &stop)
{
    sp::hazard_pointer pointer = sp::make_hazard_pointer();
    while (!stop.load(std::memory_order_relaxed)) {
        CHECK(read_region() == 1 && read_hazard(pointer) == 1);
        // The writer waits for the readers all the time. Without this it would wait for the ends of their time slices.
        if (rounds.fetch_add(1, std::memory_order_relaxed) % 16 == 0)
            sched_yield();
    }
}

void replace()
{
    by_rcu *const first = region.exchange(new by_rcu, std::memory_order_acq_rel);
    by_hazard *const second = hazard.exchange(new by_hazard, std::memory_order_acq_rel);
    switch (defect) {
    case 1:
        first->value = 1; // readers may read it
        break;
    case 2:
        second->value = 1;
        break;
    default:
        break;
    }
    first->retire();
    second->retire();
}

} // namespace

int main(int, char **arguments)
{
    defect = std::atoi(arguments[1]);
    // New threads use the records and hazard pointers of threads that have ended.
    for (int generation = 0; generation < 3; generation++) {
        std::atomic<int> rounds[3] = {};
        std::atomic<bool> stop{false};
        std::thread readers[3];
        for (int i = 0; i < 3; i++)
            readers[i] = std::thread(reads, std::ref(rounds[i]), std::cref(stop));
        for (int i = 0; i < 100; i++) {
            for (const std::atomic<int> &done : rounds)
                for (const int before = done.load(std::memory_order_relaxed);
                     done.load(std::memory_order_relaxed) - before < 2;)
                    sched_yield();
            replace();
        }
        stop = true;
        for (std::thread &reader : readers)
            reader.join();
    }
    sp::rcu_barrier();
    sp::hazard_pointer_clean_up();
    delete region.load();
    delete hazard.load();
}
