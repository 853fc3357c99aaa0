//! Fences in machine code. No run of a program shows reliably that a fence is there: that depends on the processor, and on how soon the
//! other thread looks.

use std::path::Path;
use std::process::Command;

use crate::programs::{said, skipped, FLAGS};

/// The assembly of a C source for each processor whose compiler is installed. `include` is the folder of the headers.
pub(crate) fn machine_code(source: &Path, include: &Path) -> Vec<String> {
    let mut codes = Vec::new();
    for compiler in ["aarch64-linux-gnu-gcc", "x86_64-linux-gnu-gcc"] {
        let mut command = Command::new(compiler);
        command.args(FLAGS).args(["-O2", "-S", "-o", "-", "-I"]).arg(include).arg(source);
        let Ok(output) = command.output() else {
            skipped(&format!("{compiler} is not installed"));
            continue;
        };
        if said(&output).contains("bits/") && said(&output).contains("No such file") {
            skipped(&format!(
                "{compiler} is installed without headers of a C library, such as libc6-dev-arm64-cross"
            ));
            continue;
        }
        assert!(output.status.success(), "{}", said(&output));
        codes.push(said(&output));
    }
    codes
}

/// Whether a function of this assembly has a fence.
pub(crate) fn has_fence(code: &str, function: &str) -> bool {
    let body = code.split(&format!("\n{function}:")).nth(1).unwrap();
    let body = &body[..body.find(&format!("\t.size\t{function}")).unwrap()];
    ["dmb\tish\n", "mfence", "lock or", "lock xadd"].iter().any(|fence| body.contains(fence))
}
