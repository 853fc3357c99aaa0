//! Refuses system calls, by a seccomp filter.

use std::io;

/// From now on, the kernel refuses a system call to this thread and to threads that it starts, with `errno`: with any arguments, or where the
/// argument with this index (from 0) is this one.
pub(crate) fn refuse_if(call: i64, argument: Option<(u32, u32)>, errno: i32) {
    // The offset of an argument in `seccomp_data`, on little-endian machines.
    let offset = |index: u32| 16 + 8 * index;
    let statement = |code: u32, k: u32| libc::sock_filter { code: code as u16, jt: 0, jf: 0, k };
    let mut program = [
        // The number of the system call is the first field of `seccomp_data`.
        statement(libc::BPF_LD | libc::BPF_W | libc::BPF_ABS, 0),
        libc::sock_filter { jf: 3, ..statement(libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K, call as u32) },
        // The lower half of the argument, if a certain one is meant.
        statement(libc::BPF_LD | libc::BPF_W | libc::BPF_ABS, argument.map_or(0, |(index, _)| offset(index))),
        libc::sock_filter {
            jf: 1,
            ..statement(
                libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K,
                argument.map_or(call as u32, |(_, value)| value),
            )
        },
        statement(libc::BPF_RET | libc::BPF_K, libc::SECCOMP_RET_ERRNO | errno.unsigned_abs()),
        statement(libc::BPF_RET | libc::BPF_K, libc::SECCOMP_RET_ALLOW),
    ];
    let filter = libc::sock_fprog { len: program.len() as u16, filter: program.as_mut_ptr() };
    // SAFETY: no pointers are passed.
    let answer = unsafe { libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) };
    assert_eq!(answer, 0, "{}", io::Error::last_os_error());
    // SAFETY: the filter and its program are alive for the call, which copies them.
    let answer = unsafe { libc::prctl(libc::PR_SET_SECCOMP, libc::SECCOMP_MODE_FILTER, &raw const filter) };
    assert_eq!(answer, 0, "{}", io::Error::last_os_error());
}
