// A lock-free stack: stillpoint/hazard_pointer.hpp, the <hazard_pointer> of C++26.
//
// pop reads the successor of the head while a hazard pointer protects the head. The head is not deleted meanwhile, and its address is not
// used again, so the compare-exchange cannot mistake another node for it. A thread that is preempted in pop holds up one node.

#include <atomic>
#include <cstdio>
#include <optional>
#include <thread>
#include <utility>
#include <vector>

#include "stillpoint/hazard_pointer.hpp"

template <class T>
class stack {
public:
    stack() = default;
    stack(const stack &) = delete;
    stack &operator=(const stack &) = delete;

    /// No thread uses the stack any more.
    ~stack()
    {
        for (node *found = head.load(std::memory_order_relaxed); found != nullptr;) {
            node *const next = found->next;
            delete found;
            found = next;
        }
    }

    void push(T value)
    {
        node *const made = new node(std::move(value));
        made->next = head.load(std::memory_order_relaxed);
        while (!head.compare_exchange_weak(made->next, made, std::memory_order_release, std::memory_order_relaxed)) {
        }
    }

    /// `hazard` is the calling thread's own, and is not empty.
    std::optional<T> pop(stillpoint::hazard_pointer &hazard)
    {
        for (;;) {
            node *found = hazard.protect(head);
            if (found == nullptr)
                return std::nullopt;
            if (head.compare_exchange_weak(found, found->next, std::memory_order_acq_rel, std::memory_order_relaxed)) {
                std::optional<T> value(std::move(found->value));
                hazard.reset_protection();
                found->retire(); // deleted when no other hazard pointer protects it
                return value;
            }
        }
    }

private:
    struct node : stillpoint::hazard_pointer_obj_base<node> {
        T value;
        node *next = nullptr;

        explicit node(T found) : value(std::move(found)) {}
    };

    std::atomic<node *> head{nullptr};
};

int main()
{
    stack<long> shared;
    std::atomic<long> sum{0};
    std::vector<std::thread> threads;
    for (int number = 0; number < 4; number++) {
        threads.emplace_back([&] {
            stillpoint::hazard_pointer hazard = stillpoint::make_hazard_pointer();
            for (long value = 1; value <= 10000; value++) {
                shared.push(value);
                if (const std::optional<long> popped = shared.pop(hazard))
                    sum += *popped;
            }
        });
    }
    for (std::thread &thread : threads)
        thread.join();
    stillpoint::hazard_pointer hazard = stillpoint::make_hazard_pointer();
    while (const std::optional<long> popped = shared.pop(hazard))
        sum += *popped;
    stillpoint::hazard_pointer_clean_up(); // every node is deleted
    std::printf("popped %ld of %ld\n", sum.load(), 4 * 10000L * 10001 / 2);
}
