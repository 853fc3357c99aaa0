//! The compilers that tests of ThreadSanitizer use.

use std::process::Command;

use crate::programs::{place, skipped, Compiler, COMPILERS};

/// Compilers that link with the runtime of ThreadSanitizer.
pub(crate) fn sanitizing() -> impl Iterator<Item = Compiler> {
    COMPILERS.into_iter().filter(|compiler| compiler.is_there()).filter(|compiler| {
        let source = place().join("empty.c");
        std::fs::write(&source, "int main(void) { return 0; }\n").unwrap();
        let program = place().join(format!("empty-{}", compiler.name));
        let mut command = compiler.command();
        command.arg("-fsanitize=thread").arg(&source).arg("-o").arg(&program);
        let is_there = command.output().unwrap().status.success()
            && Command::new(&program).output().is_ok_and(|output| output.status.success());
        if !is_there {
            skipped(&format!("ThreadSanitizer of {} is not installed", compiler.name));
        }
        is_there
    })
}
