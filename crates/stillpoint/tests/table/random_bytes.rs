//! The fuzz target's function on random bytes, so that it runs with every test. `STILLPOINT_TEST_ROUNDS=N` runs N times as many.

use crate::bytes::run;
use crate::rounds::rounds;

fn random_bytes(seed: u64, len: usize) -> Vec<u8> {
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    let next = || {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 56) as u8
    };
    std::iter::repeat_with(next).take(len).collect()
}

#[test]
fn random_operations_do_as_they_should() {
    for seed in 0..75 * rounds() as u64 {
        let mut bytes = random_bytes(seed, 20 + seed as usize * 11 % 3_000);
        bytes[0] = seed as u8; // every kind of run
        run(&bytes);
    }
}

#[test]
fn inputs_that_end_anywhere_are_taken() {
    for round in 0..rounds() as u64 {
        for len in 0..200 {
            let mut bytes = random_bytes(len + 1_000 * round, len as usize);
            bytes.iter_mut().take(1).for_each(|first| *first = (len + round) as u8); // in four rounds, every kind of run
            run(&bytes);
        }
    }
}
