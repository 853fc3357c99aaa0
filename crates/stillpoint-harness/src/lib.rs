//! What the experiments of the program `stillpoint` share: the machine, the output, rounds and threads, virtual machines.
//!
//! - [`machine`] says what results were measured on; [`output`] brings them to people and tools.
//! - [`experiment`] has the turns of contenders, the threads of a round, and measurements in a process of their own.
//! - [`qemu`] runs a virtual machine to its end.
//! - [`results`] are the places of what a command leaves beside the terminal.
//! - [`flags`] and [`error`] are what the commands have in common: their flags, and why they end without a result.
//!
//! It knows no experiment and no peer: torture, the simulator and the benchmarks stand above it.

pub mod error;
pub mod experiment;
pub mod flags;
pub mod gate;
pub mod interrupt;
pub mod machine;
pub mod output;
pub mod qemu;
pub mod random;
pub mod results;
pub mod stats;
