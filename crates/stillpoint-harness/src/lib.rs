//! The parts that the experiments of the program `stillpoint` share: the machine, the output, rounds and threads, virtual
//! machines.
//!
//! - [`machine`] describes the machine of the results; [`output`] brings them to people and tools.
//! - [`experiment`] has the turns of contenders, the threads of a round, and measurements in child processes.
//! - [`qemu`] runs a virtual machine to its end.
//! - [`results`] has the files that a command writes.
//! - [`flags`] has the flags that several commands share; [`error`] says why a command ends without a result.
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
