//! How an experiment runs: contenders in turns, threads on their CPUs, child processes, and the time for each row.

pub mod child;
pub mod control;
pub mod rounds;
pub mod show;
pub mod threads;
pub mod timing;
