//! The parts that the experiments of the program `stillpoint` share: the machine, the output, rounds and threads, virtual
//! machines.
//!
//! - [`machine`] describes the machine of the results; [`output`] prints them, draws them and writes them as files.
//! - [`experiment`] has the turns of contenders, the threads of a round, and measurements in child processes.
//! - [`qemu`] runs a virtual machine to its end.
//! - [`results`] has the files that a command writes.
//! - [`flags`] has the flags that several commands share; [`error`] says why a command ends without a result.
//!
//! The crate depends on no experiment and on no peer. Torture, the simulator and the benchmarks depend on it.

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
