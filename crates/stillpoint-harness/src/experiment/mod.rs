//! How an experiment is run: contenders in turns, threads on their CPUs, processes of their own, and the time for it.

pub mod child;
pub mod control;
pub mod rounds;
pub mod show;
pub mod threads;
pub mod timing;
