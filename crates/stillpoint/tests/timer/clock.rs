//! Clocks: units, conversions, and monotonic time.

use std::time::Duration;

use stillpoint::timer::Clock;

fn clocks() -> Vec<Clock> {
    vec![Clock::new(), Clock::of_system(), Clock::of_cycles(), Clock::of_ticks(10), Clock::default()]
}

#[test]
fn time_does_not_go_back() {
    for clock in clocks() {
        let mut last = clock.now();
        for _ in 0..if cfg!(miri) { 100 } else { 100_000 } {
            let now = clock.now();
            assert!(now >= last, "{now} after {last}: {clock:?}");
            last = now;
        }
    }
}

#[test]
#[cfg(not(miri))]
fn a_clock_goes_as_fast_as_the_system_s() {
    // If the thread is preempted between two reads, the times differ too much. So only one of many tries has to
    // succeed.
    for clock in clocks() {
        let close = (0..50).any(|_| {
            let (begin, instant) = (clock.now(), std::time::Instant::now());
            std::thread::sleep(Duration::from_millis(20));
            let (end, elapsed) = (clock.now(), instant.elapsed());
            let measured = clock.duration_of(end - begin);
            measured.abs_diff(elapsed) < elapsed / 100
        });
        assert!(close, "in no try as fast as the system's clock: {clock:?}");
    }
}

#[test]
fn durations_are_converted_there_and_back() {
    for clock in clocks() {
        for duration in [0, 1, 999, 1_000_000, 3_600_000_000_000, 1 << 50].map(Duration::from_nanos) {
            let back = clock.duration_of(clock.ticks_of(duration));
            let tick = clock.duration_of(1) + Duration::from_nanos(2);
            assert!(
                back + Duration::from_nanos(1) >= duration && back <= duration + tick,
                "{clock:?} {duration:?} {back:?}"
            );
        }
        assert_eq!(clock.ticks_of(Duration::ZERO), 0);
        assert!(clock.ticks_of(Duration::from_nanos(1)) >= 1, "a wait is never shorter than asked for");
        assert_eq!(clock.ticks_of(Duration::MAX), u64::MAX);
        let _ = clock.duration_of(u64::MAX);
    }
}

#[test]
fn a_clone_shows_the_same_time() {
    let clock = Clock::new();
    let clone = clock.clone();
    let (before, between, after) = (clock.now(), clone.now(), clock.now());
    assert!(before <= between && between <= after);
}

#[test]
fn a_mock_clock_does_as_it_is_told() {
    let (clock, time) = Clock::mock(5);
    let other = clock.clone();
    assert!(!clock.has_counter());
    time.advance(Duration::from_nanos(10));
    assert_eq!((clock.now(), other.now()), (15, 15));
    time.set(u64::MAX - 5);
    time.advance(Duration::from_nanos(10));
    assert_eq!(clock.now(), u64::MAX, "the time does not wrap");
    time.set(5);
    time.advance(Duration::from_secs(1 << 40));
    assert_eq!(clock.now(), u64::MAX);
    time.set(3);
    assert_eq!(clock.now(), 3);
    assert_eq!(clock.ticks_of(Duration::from_micros(1)), 1_000);
    assert_eq!(clock.duration_of(1_000), Duration::from_micros(1));
}

#[test]
fn a_tick_of_no_size_is_refused() {
    assert!(std::panic::catch_unwind(|| Clock::of_ticks(64)).is_err());
}

#[test]
fn ticks_of_any_size_are_turned_into_durations() {
    for shift in [0, 20, 33, 63] {
        let clock = Clock::of_ticks(shift);
        let one = clock.duration_of(1);
        let thousand = clock.duration_of(1_000);
        assert!(
            thousand >= one * 1_000 && thousand <= (one + Duration::from_nanos(1)) * 1_000,
            "1,000 ticks of 2^{shift} cycles take {thousand:?}"
        );
        assert!(clock.duration_of(u64::MAX) >= clock.duration_of(u64::MAX - 1));
    }
    assert_eq!(Clock::of_ticks(63).duration_of(u64::MAX), Duration::MAX);
    // 2^83 cycles are longer than 2^64.
    let (long, short) = (Clock::of_ticks(20).duration_of(1 << 63), Clock::of_ticks(0).duration_of(u64::MAX));
    assert!(long > short, "{long:?} is not longer than {short:?}");
}
