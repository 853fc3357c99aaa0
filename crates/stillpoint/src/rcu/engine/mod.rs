//! The engine behind `rcu`: tokens, records, hazard slots, and what waits for them.
//!
//! The proof of correctness is in `docs/design/rcu.md`; comments refer to its steps.
//!
//! | file | holds |
//! |---|---|
//! | `core/` | all that correctness needs; imports none of the others |
//! | `core/registry` | slots that are claimed without locks and never move |
//! | `core/record` | what a reader publishes: its region state and its hazard slots |
//! | `core/read` | the readers' protocols: enter and leave, protect, report, register |
//! | `answer` | the same calls, with the answer of a reader that is asked for attention |
//! | `core/grace` | the writer's protocol: start a token, fence, scan the regions, gather the hazards |
//! | `core/garbage` | an unlinked object with its type erased |
//! | `layout` | where debuggers find all this |
//! | `directory` | how unlinked objects find their domain, which they do not keep alive |
//! | `queue/` | what was retired and is not freed |
//! | `queue/line` | what waits for grace periods in order, and what is in its way |
//! | `queue/retire_list` | a line of objects with one owner |
//! | `queue/account` | how much waits, in a domain or with the handles of a reclaimer |
//! | `queue/handover` | hand-over of objects between threads, and objects that belong to no retire list |
//! | `queue/shelf` | retire lists that anybody may serve: of threads that have no reclaimer, and of tables |
//! | `queue/callbacks/` | callbacks in the user's own objects |
//! | `queue/channel` | what retire handles and a background reclaimer share |
//! | `wait/` | waiting for a reader, and being woken by it |
//! | `wait/park` | how a thread waits for a reader |
//! | `wait/tasks`, `wait/wakers` | how a future waits for a reader, and what wakes it |
//! | `wait/own_holds` | what a thread that waits holds up itself |
//! | `wait/report`, `wait/error` | the report of a stall, and why a wait ended early |
//! | `wait/stall` | which stalls are reported, and when |
//! | `wait/counters` | what is counted for statistics, and for waits |
//! | `wait/delays` | how long objects have waited |
//! | `boost/policy` | which preempted readers are boosted, and until when |
//! | `boost/state` | what a thread keeps for its boosters |

mod answer;
pub(crate) mod boost;
pub(crate) mod core;
pub(crate) mod directory;
#[cfg(all(target_os = "linux", not(any(miri, stillpoint_loom))))]
mod layout;
pub(crate) mod queue;
pub(crate) mod wait;

use std::fmt;
use std::marker::PhantomPinned;
use std::sync::atomic::AtomicU64 as PlainU64;
use std::sync::Arc;
use std::time::Duration;

use crossbeam_utils::CachePadded;

use self::boost::{BoostState, Boosting};
use self::core::registry::Registry;
use self::core::Protocol;
use self::directory::Name;
use self::queue::account::Account;
use self::queue::account::Limits;
use self::queue::handover::Orphans;
use self::queue::shelf::Shelves;
use self::wait::counters::Counters;
use self::wait::delays::Counts;
use self::wait::own_holds::Questions;
use self::wait::park::Event;
use self::wait::stall::Watch;
use self::wait::wakers::Wakers;
use crate::fence::Mode;
use crate::frames::{self, Foreign};
use stillpoint_sys::panics;
use stillpoint_sys::sync::atomic::AtomicBool;

/// One domain. Its handles (domain, readers, reclaimers) share it. The last handle to go frees what is left.
pub struct Core {
    /// How unlinked objects name the domain.
    pub(crate) reference: Name,
    /// Makes the core `!Unpin`, so that the compiler does not assume that an exclusive reference to the core is the only
    /// reference. There are others: cells read their domain's `reference` even while the domain is being dropped.
    _shared: PhantomPinned,
    name: Box<str>,
    pub(crate) protocol: Protocol,
    counters: Registry<Counters>,
    /// Objects that belong to no retire list: dropped retirements, and what dropped reclaimers left.
    orphans: Orphans,
    /// Objects of threads that retire without a reclaimer: see `queue/shelf`.
    pub(crate) shelves: Shelves,
    /// Counts what no retire list counts: orphans, and objects that were freed singly.
    shared_counters: Counters,
    /// `None` in a domain without limits.
    account: Option<Box<CachePadded<Account>>>,
    delays: Counts,
    event: Event,
    /// The futures that wait in the domain.
    pub(crate) wakers: Wakers,
    /// Whether the kernel has refused a fence for a future's request.
    request_refused: AtomicBool,
    watch: Option<Watch>,
    /// What threads that wait ask those who poll.
    questions: Questions,
    /// How preempted readers are boosted, if they are.
    boost: Option<Boosting>,
}

/// The settings of a domain.
pub(crate) struct Settings {
    pub(crate) name: Option<String>,
    pub(crate) mode: Mode,
    pub(crate) limits: Limits,
    pub(crate) boost: Option<Boosting>,
    pub(crate) watch: Option<Watch>,
}

impl Default for Settings {
    fn default() -> Self {
        Self { name: None, mode: Mode::Symmetric, limits: Limits::NONE, boost: None, watch: None }
    }
}

impl Core {
    pub(crate) fn new(settings: Settings) -> Arc<Self> {
        let Settings { name, mode, limits, boost, watch } = settings;
        #[cfg(any(feature = "metrics", feature = "tracing"))]
        let watch = watch.or_else(|| Some(Watch::default()));
        // Not modelled: a number for reports. Its order does not matter.
        static NEXT_ID: PlainU64 = PlainU64::new(1);
        let id = NEXT_ID.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
        let core = Arc::new(Self {
            reference: Name::new(id),
            _shared: PhantomPinned,
            name: name.unwrap_or_else(|| format!("domain-{id}")).into_boxed_str(),
            protocol: Protocol::new(mode, boost.is_some()),
            counters: Registry::new(),
            orphans: Orphans::default(),
            shelves: Shelves::new(),
            shared_counters: Counters::default(),
            account: Account::new(limits).map(|account| Box::new(CachePadded::new(account))),
            delays: Counts::new(),
            event: Event::new(if boost.is_some() { boost::LIMIT } else { wait::park::LONGEST_SLEEP }),
            wakers: Wakers::new(),
            request_refused: AtomicBool::new(false),
            watch,
            questions: Questions::new(),
            boost,
        });
        core.reference.list(&core);
        // Whoever links a domain links the table for debuggers.
        #[cfg(all(target_os = "linux", not(any(miri, stillpoint_loom))))]
        std::hint::black_box(&layout::LAYOUT);
        core
    }

    #[inline(always)]
    pub(crate) fn id(&self) -> u64 {
        self.reference.number()
    }

    pub(crate) fn name(&self) -> &str {
        &self.name
    }

    pub(crate) fn delays(&self) -> &Counts {
        &self.delays
    }

    pub(crate) fn shared_counters(&self) -> &Counters {
        &self.shared_counters
    }

    /// The counters of all retire lists, including dropped ones.
    pub(crate) fn all_counters(&self) -> impl Iterator<Item = &Counters> {
        self.counters.iter_all()
    }

    /// The sum of all counters, including those of dropped retire lists. Looks at all readers, for what they hold now: nobody
    /// may have polled since an object was found held.
    pub(crate) fn sum(&self) -> wait::counters::Sum {
        let holders = self.protocol.holders();
        wait::counters::Sum::over(self.counters.iter_all().chain([&self.shared_counters]), &holders)
    }

    /// Time since the domain was made.
    pub(crate) fn age(&self) -> Duration {
        self.protocol.age()
    }

    /// In the child of a `fork`: releases every record that another thread of the parent held.
    ///
    /// # Safety
    /// The calling thread is the only one of the process, has interrupted no call of this library by a signal handler, and uses no
    /// reference that was borrowed through a reader of another thread: the objects behind such references may be freed from now on.
    pub(crate) unsafe fn reset_after_fork(&self) {
        // SAFETY: the caller is the only thread of the process, and uses no reference that another thread's reader lent.
        unsafe { self.protocol.reset_after_fork(BoostState::remove_holder) };
        self.event.reset();
        // SAFETY: the caller is the only thread of the process, and has interrupted no call of the library that adopts.
        unsafe { self.orphans.reset_after_fork() };
        self.reset_shelves_after_fork();
        self.questions.reset_after_fork();
        // No thread serves the lists of the parent's other threads any more.
        self.all_counters().for_each(|counters| counters.set_served(false));
        // SAFETY: the caller is the only thread of the process.
        unsafe { self.wakers.reset_after_fork() };
    }
}

impl fmt::Debug for Core {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Domain").field(&self.name).finish()
    }
}

/// Frees everything that is left: the last handle is gone, so there is no reader.
impl Drop for Core {
    fn drop(&mut self) {
        self.reference.unlist();
        let _foreign = Foreign::begin();
        let mut first = None;
        // What destructors retire meanwhile no longer finds the domain, and waits for its turn in `free_left`.
        self.orphans.adopt(usize::MAX, |orphan| {
            // SAFETY: every reader holds a handle of the domain, and there is no handle any more. `Arc` acquires the handles'
            // count before it drops its contents.
            if let Some(panic) = unsafe { core::garbage::free_left(orphan) } {
                frames::keep_first(&mut first, panic);
            }
        });
        panics::resume(first);
    }
}
