// SPDX-License-Identifier: MIT OR Apache-2.0
//
// stillpoint/rcu.hpp: the header <rcu> of C++26 ([saferecl.rcu]), in namespace stillpoint, for C++17 and newer.
//
//     #include <atomic>
//     #include <cstdio>
//     #include <mutex>
//     #include <thread>
//     #include "stillpoint/rcu.hpp"
//
//     struct config : stillpoint::rcu_obj_base<config> {
//         int mtu;
//         explicit config(int bytes) : mtu(bytes) {}
//     };
//     static std::atomic<config *> current{new config(1500)};
//
//     static void show() {                                // any thread; nothing to register
//         std::scoped_lock region(stillpoint::rcu_default_domain());
//         const config *found = current.load(std::memory_order_acquire);
//         std::printf("mtu %d\n", found->mtu);             // not deleted before the end of the region
//     }
//
//     static void replace(config *next) {
//         current.exchange(next, std::memory_order_acq_rel)->retire();
//     }
//
//     int main() {
//         std::thread reader(show);
//         replace(new config(9000));
//         reader.join();
//         stillpoint::rcu_barrier();                      // what was retired is deleted
//         delete current.load();
//     }
//
// What the standard leaves open:
//   - Scheduled evaluations (deleters) run on a thread of the library, one after the other, with no lock of the library held. The first
//     retirement starts the thread. All signals but SIGPROF and those of faults are blocked on it. It has the policy SCHED_OTHER, and the
//     CPUs with which the process began. While the thread runs, no deleter runs within lock, unlock, retire or rcu_retire. If the thread
//     cannot be started, every 256th retirement tries again; a retirement outside regions that cannot start the thread runs deleters
//     itself, and so does rcu_barrier while there is no thread: a program that retires only within regions calls it then.
//   - A deleter may lock, retire, and call rcu_synchronize. rcu_barrier in a deleter, or in any destructor, callback or hook that the
//     library calls, could wait for its own end: it reports the mistake (still_on_report in stillpoint.h), and returns at once.
//   - rcu_synchronize within a region of the same thread reports the mistake, and waits for ever. So does rcu_barrier if anything is scheduled,
//     even if it was scheduled before the region began; without a report, if a deleter that runs is in rcu_synchronize.
//   - The first lock of a thread registers it. It is unregistered after the destructors of its thread-locals, which may lock. A region
//     that is still open then ends, except in a process that had used up its pthread keys when it loaded the library by dlopen. A signal
//     handler may call lock and unlock, in pairs, if its thread has locked before and its key destructors have not run yet.
//   - retire neither allocates nor fails. From then until its deleter is called, an object must not be assigned to: that would overwrite
//     what the library keeps in it. If all files of a program define STILL_CHECKED, such an assignment and a second retire end the
//     program with a message; then rcu_obj_base is not trivially copyable.
//   - rcu_retire allocates a node by operator new, and throws what operator new or D throws.
//   - The end of a program does not wait for deleters: if they have to run, call rcu_barrier before the things that they use are gone.
//   - A child of fork runs scheduled deleters at its next retirement or rcu_barrier. Objects that other threads retire while fork runs
//     may be lost in the child: they stay in memory. In the child, regions of the parent's other threads are over. Handlers of
//     pthread_atfork may use everything here, unless they were registered before the library was loaded.
//   - fork waits for a deleter that is running. There is one exception: if the deleter is within rcu_synchronize or itself forks, and the
//     thread that forks is within a region or a deleter, fork does not wait, and the child loses everything that was scheduled. fork must
//     not be called in a signal handler.
//   - If two copies of the library are in a process, each has its own domain. The second one that is used reports that, with the names of
//     both files: see PLUGINS in stillpoint.h.
#ifndef STILLPOINT_RCU_HPP
#define STILLPOINT_RCU_HPP

#if !defined(__cplusplus) || __cplusplus < 201703L
#error "stillpoint/rcu.hpp needs C++17 or newer"
#endif

#include <memory>
#include <type_traits>
#include <utility>

#include "stillpoint/reclamation.h"

namespace stillpoint {

class rcu_domain;
rcu_domain &rcu_default_domain() noexcept;

/// A domain of regions. It is Lockable, and nests; there is one, the default domain.
class rcu_domain {
public:
    rcu_domain(const rcu_domain &) = delete;
    rcu_domain &operator=(const rcu_domain &) = delete;

    /// Opens a region of the calling thread.
    void lock() const noexcept
    {
        still_rcu_thread_ *own = &still_thread_->rcu;
        if (__builtin_expect(own->record == nullptr, 0))
            own = still_rcu_begin_(STILL_RECLAMATION_LAYOUT_);
        still_rcu_thread_ &self = *own;
        uint64_t *const state = state_of(self);
        const uint64_t old = __atomic_load_n(state, __ATOMIC_RELAXED);
        if (__builtin_expect(detail::is_here(old), 1)) {
            // Acquire: pairs with the read-modify-write of start. Release: pairs with the acquire load of check.
            __atomic_store_n(state, __atomic_load_n(self.token, __ATOMIC_ACQUIRE), __ATOMIC_RELEASE);
            // Orders this store before the loads of the region. Pairs with the heavy fence of a thread that waits.
            detail::reader_fence((self.flags & STILL_RCU_FULL_FENCE_) != 0);
        } else if (static_cast<int64_t>(old) > 0) {
            ++self.nested;
            // This may be a signal handler that has interrupted a lock before its fence.
            detail::reader_fence((self.flags & STILL_RCU_FULL_FENCE_) != 0);
        } else {
            still_rcu_enter_(&self);
        }
    }

    /// As lock(). Returns true.
    bool try_lock() const noexcept
    {
        lock();
        return true;
    }

    /// Closes the region that the calling thread opened last.
    void unlock() const noexcept
    {
        still_rcu_thread_ &self = still_thread_->rcu;
        if (self.nested != 0) {
            --self.nested;
            return;
        }
        // Acquire: pairs with the read-modify-write of start. What the thread loads from now on is newer than what was unlinked before.
        const uint64_t token = __atomic_load_n(self.token, __ATOMIC_ACQUIRE);
        // Release: pairs with the acquire load of check. The accesses of the region come before the deleters.
        __atomic_store_n(state_of(self), token | STILL_RCU_IDLE_, __ATOMIC_RELEASE);
        __atomic_signal_fence(__ATOMIC_SEQ_CST);
        if (__builtin_expect(__atomic_load_n(attention_of(self), __ATOMIC_RELAXED) != 0, 0))
            still_rcu_answer_(&self);
    }

private:
    constexpr explicit rcu_domain(int) noexcept {}

    static uint64_t *state_of(const still_rcu_thread_ &self) noexcept
    {
        return reinterpret_cast<uint64_t *>(self.record + STILL_RCU_STATE_);
    }

    static uint32_t *attention_of(const still_rcu_thread_ &self) noexcept
    {
        return reinterpret_cast<uint32_t *>(self.record + STILL_RCU_ATTENTION_);
    }

    friend rcu_domain &rcu_default_domain() noexcept;
};

/// The domain of the process. It lives until the process ends.
inline rcu_domain &rcu_default_domain() noexcept
{
    static rcu_domain domain(0);
    return domain;
}

/// Base of a class T whose objects are retired: struct T : rcu_obj_base<T>. It takes two words, and room for the deleter unless that is an
/// empty class.
template <class T, class D = std::default_delete<T>>
class rcu_obj_base {
public:
    /// Schedules d(this object): it runs after the end of every region that is open now.
    void retire(D d = D(), rcu_domain &domain = rcu_default_domain()) noexcept
    {
        static_assert(detail::protectable<stillpoint::rcu_obj_base, T>::value,
                      "T must have one base rcu_obj_base<T, D>, which is public and not virtual, and no other rcu_obj_base");
        static_cast<void>(domain);
        detail::begin_retirement(still_retirable_);
        still_retirable_.deleter() = std::move(d);
        still_rcu_retire_(std::addressof(still_retirable_), &still_reclaim_);
    }

protected:
    rcu_obj_base() = default;
    rcu_obj_base(const rcu_obj_base &) = default;
    rcu_obj_base(rcu_obj_base &&) = default;
    rcu_obj_base &operator=(const rcu_obj_base &) = default;
    rcu_obj_base &operator=(rcu_obj_base &&) = default;
    ~rcu_obj_base() = default;

private:
    static void still_reclaim_(void *node) noexcept
    {
        rcu_obj_base *const base = static_cast<rcu_obj_base *>(node);
        detail::reclaim(base->still_retirable_, static_cast<T *>(base));
    }

    detail::retirable<D, 2> still_retirable_ = detail::retirable<D, 2>();
};

/// Blocks until every region that is open now has been closed.
inline void rcu_synchronize(rcu_domain &domain = rcu_default_domain()) noexcept
{
    static_cast<void>(domain);
    still_rcu_synchronize_();
}

/// Blocks until every deleter that was scheduled before has run.
inline void rcu_barrier(rcu_domain &domain = rcu_default_domain()) noexcept
{
    static_cast<void>(domain);
    still_rcu_barrier_();
}

namespace detail {

template <class T, class D>
struct retired {
    void *words[2];
    T *object;
    D deleter;

    retired(T *p, D &&d) : words{}, object(p), deleter(std::move(d)) {}
    retired(const retired &) = delete;
    retired &operator=(const retired &) = delete;

    static void reclaim(void *node) noexcept
    {
        retired *const self = static_cast<retired *>(node);
        self->deleter(self->object);
        delete self;
    }
};

} // namespace detail

/// Schedules d(p): it runs after the end of every region that is open now. If it throws, nothing is scheduled.
template <class T, class D = std::default_delete<T>>
void rcu_retire(T *p, D d = D(), rcu_domain &domain = rcu_default_domain())
{
    static_assert(std::is_move_constructible_v<D>, "D must be move-constructible");
    static_assert(std::is_invocable_v<D &, T *>, "d(p) must be well-formed");
    static_cast<void>(domain);
    detail::retired<T, D> *const node = new detail::retired<T, D>(p, std::move(d));
    still_rcu_retire_(node, &detail::retired<T, D>::reclaim);
}

/// Beyond the standard: a new handle of the domain, for still_domain_stats and still_domain_stall of stillpoint.h. Free it with
/// still_domain_free. NULL if there is no memory. For waits and callbacks use the functions above.
inline still_domain *rcu_domain_handle() noexcept
{
    return still_rcu_domain_();
}

} // namespace stillpoint

#endif
