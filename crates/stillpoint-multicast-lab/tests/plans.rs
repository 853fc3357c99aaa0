//! The kernel module and the library split ranges of receivers by the same rule: what `kernel/plan.h` prints is compared
//! with `stillpoint_multicast`. The simulator calls the library's.

#[path = "../../stillpoint/tests/support/skip.rs"]
mod skip;

use std::path::Path;
use std::process::Command;

use stillpoint_multicast::{Share, Strategy};

use skip::skipped;

/// The numbers of `enum still_mb_strategy`.
const SMP_CALL: u32 = 0;
const FLAT: u32 = 1;
const TREE: u32 = 2;
const SPLIT: u32 = 3;
const HYBRID: u32 = 4;

/// What the C program prints, or `None` without a C compiler.
fn printed(arguments: &[&str]) -> Option<String> {
    let folder = tempfile::tempdir().unwrap();
    let kernel = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../kernel");
    let program = folder.path().join("plans");
    let built = Command::new("cc").arg("-o").arg(&program).arg(kernel.join("tests/plans.c")).status().ok()?;
    assert!(built.success(), "plans.c does not compile");
    let output = Command::new(&program).args(arguments).output().unwrap();
    assert!(output.status.success());
    Some(String::from_utf8(output.stdout).unwrap())
}

#[test]
fn the_module_and_the_library_split_by_the_same_rule() {
    let Some(printed) = printed(&[]) else {
        return skipped("there is no C compiler (cc) in PATH");
    };
    let mut compared = [0; 5];
    for line in printed.lines() {
        let numbers: Vec<u32> = line.split(' ').map(|number| number.parse().unwrap()).collect();
        let [number, percent, threshold, receivers, resolved, share] = numbers[..] else {
            panic!("'{line}' has {} numbers", numbers.len());
        };
        let strategy = match number {
            FLAT => Strategy::Flat,
            TREE => Strategy::Tree,
            SPLIT => Strategy::Split(Share::percent(percent).unwrap()),
            HYBRID => Strategy::Hybrid(threshold),
            other => panic!("strategy {other}"),
        };
        let decided = strategy.resolve(receivers);
        let expected = match decided {
            // The module's hybrid leaves few receivers to the kernel's own call, which is as flat.
            Strategy::Flat if number == HYBRID => SMP_CALL,
            Strategy::Flat => FLAT,
            Strategy::Tree => TREE,
            _ => SPLIT,
        };
        assert_eq!(
            (resolved, share),
            (expected, decided.group(receivers)),
            "{strategy:?}, {receivers} receivers"
        );
        compared[number as usize] += 1;
    }
    assert_eq!(compared, [0, 1024, 1024, 99 * 1024, 8 * 1024], "some strategies were not printed");
}

/// Each initiator has its own order, in which each CPU appears once. No two initiators begin with the same CPU, and
/// no CPU is an inner node of more trees than others.
#[test]
fn initiators_of_the_module_begin_behind_themselves() {
    const CPUS: usize = 24;
    let Some(printed) = printed(&[&CPUS.to_string()]) else {
        return skipped("there is no C compiler (cc) in PATH");
    };
    let orders: Vec<Vec<usize>> =
        printed.lines().map(|line| line.split(' ').map(|cpu| cpu.parse().unwrap()).collect()).collect();
    assert_eq!(orders.len(), CPUS);
    // How often each CPU is the first to which an initiator sends: half of all others are below it.
    let mut firsts = [0; CPUS];
    for (own, order) in orders.iter().enumerate() {
        let mut sorted = order.clone();
        sorted.sort_unstable();
        assert!(sorted.iter().copied().eq(0..CPUS), "{own}: {order:?}");
        assert_eq!(
            (order[0], order[CPUS - 1]),
            ((own + 1) % CPUS, own),
            "the order begins behind the initiator, and ends with it"
        );
        let receivers = &order[..CPUS - 1];
        let cut = Strategy::Tree.cut(0, receivers.len() as u32).unwrap();
        firsts[receivers[cut.child as usize]] += 1;
    }
    assert_eq!(firsts, [1; CPUS]);
}
