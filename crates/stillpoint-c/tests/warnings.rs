//! No header gives a warning, whatever the program that includes it asks its compiler for.

use std::path::{Path, PathBuf};
use std::process::Command;

#[path = "../../stillpoint/tests/support/skip.rs"]
mod skip;

const FLAGS: [&str; 9] = [
    "-D_GNU_SOURCE",
    "-fsyntax-only",
    "-Wall",
    "-Wextra",
    "-Wpedantic",
    "-Wshadow",
    "-Wcast-qual",
    "-Wconversion",
    "-pthread",
];

/// What a C program may write with `stillpoint.h`: calls within calls.
const LINKS: &str = "
    #include <stillpoint.h>
    struct node { struct node *next; };
    static struct node *head;
    struct node *use(struct still_reader *reader, struct still_hold *hold);
    struct node *use(struct still_reader *reader, struct still_hold *hold)
    {
        struct node *own = 0;
        if (still_hold_protect(hold, &head, &own) < 0 || still_hold_protect(hold, &own->next, &own) == 0)
            return own;
        struct still_protected held = still_protect(reader, &head);
        const struct node *first = still_load(&still_load(&head)->next);
        still_store(&head, still_exchange(&head, still_exchange(&head, (struct node *)0)));
        if (still_compare_exchange(&head, still_load(&head), still_load(&head)->next) != 0 && first != 0)
            still_release(held);
        return still_load(&head);
    }";

/// The same with a header of the drop-in for liburcu.
const URCU: &str = "
    #include <HEADER>
    struct node { struct node *next; };
    static struct node *head;
    struct node *use(void);
    struct node *use(void)
    {
        struct node *first = rcu_dereference(rcu_dereference(head)->next);
        rcu_assign_pointer(head, rcu_xchg_pointer(&head, rcu_xchg_pointer(&head, rcu_cmpxchg_pointer(&head, first, first))));
        return rcu_dereference_sym(rcu_xchg_pointer_sym((void **)&head, rcu_set_pointer_sym((void **)&head, first)));
    }";

fn place() -> PathBuf {
    let place = Path::new(env!("CARGO_TARGET_TMPDIR")).join("warnings");
    std::fs::create_dir_all(&place).unwrap();
    place
}

/// Whether this compiler is there and knows the standard.
fn knows(compiler: &str, language: &str, standard: &str) -> bool {
    let mut command = Command::new(compiler);
    let output = command.args(["-x", language, standard, "-fsyntax-only", "/dev/null"]).output();
    let knows = output.is_ok_and(|output| output.status.success());
    if !knows {
        skip::skipped(&format!("{compiler} is not installed, or does not know {standard}"));
    }
    knows
}

/// Warnings in our headers. Those in the program itself, and in the headers of others, do not count.
fn warnings(compiler: &str, language: &str, standard: &str, flags: &[&str], source: &Path) -> Vec<String> {
    let include = Path::new(env!("CARGO_MANIFEST_DIR")).join("include");
    let output = Command::new(compiler)
        .args(["-x", language, standard])
        .args(FLAGS)
        .args(flags)
        .arg("-I")
        .arg(include.join("stillpoint/liburcu"))
        .arg("-I")
        .arg(&include)
        .arg(source)
        .output()
        .unwrap();
    let said = String::from_utf8(output.stderr).unwrap();
    assert!(output.status.success(), "{compiler} {standard} {flags:?}: {said}");
    let own = include.display().to_string();
    let is_ours = |line: &&str| line.contains(&own) || line.starts_with(&source.display().to_string());
    let lines = said.lines().filter(|line| line.contains("warning:"));
    lines.filter(is_ours).map(|line| format!("{compiler} {standard} {flags:?}: {line}")).collect()
}

/// Programs without a mistake of their own.
fn written(name: &str, text: &str) -> PathBuf {
    let path = place().join(name);
    std::fs::write(&path, format!("{text}\n")).unwrap();
    path
}

#[test]
fn c_programs_see_no_warning() {
    let mut found = Vec::new();
    for compiler in ["gcc", "clang"] {
        for standard in ["-std=c11", "-std=c17", "-std=c2x"] {
            if !knows(compiler, "c", standard) {
                continue;
            }
            for checked in ["-DNOTHING", "-DSTILL_CHECKED"] {
                found.extend(warnings(
                    compiler,
                    "c",
                    standard,
                    &["-Wc++-compat", checked],
                    &written("links.c", LINKS),
                ));
            }
        }
        for standard in ["-std=gnu11", "-std=gnu17", "-std=gnu2x"] {
            if !knows(compiler, "c", standard) {
                continue;
            }
            for header in ["urcu.h", "urcu-qsbr.h", "urcu-bp.h", "urcu/urcu-mb.h", "urcu-pointer.h"] {
                let source =
                    written(&format!("{}.c", header.replace('/', "-")), &URCU.replace("HEADER", header));
                for way in ["-DNOTHING", "-D_LGPL_SOURCE"] {
                    found.extend(warnings(compiler, "c", standard, &[way, "-Wno-cast-qual"], &source));
                }
            }
        }
    }
    assert!(found.is_empty(), "{}", found.join("\n"));
}

/// The programs that test our C++ headers instantiate every template. They are not written for `-Weffc++`, so only the headers count.
#[test]
fn cpp_programs_see_no_warning_of_our_headers() {
    let mut found = Vec::new();
    for compiler in ["g++", "clang++"] {
        for standard in ["-std=c++17", "-std=c++20", "-std=c++2b"] {
            if !knows(compiler, "c++", standard) {
                continue;
            }
            for program in
                ["tests/cpp/rcu.cc", "tests/cpp/hazard.cc", "examples/configuration.cc", "examples/stack.cc"]
            {
                let source = Path::new(env!("CARGO_MANIFEST_DIR")).join(program);
                let seen = warnings(compiler, "c++", standard, &["-Weffc++", "-DSTILL_CHECKED"], &source);
                found.extend(seen.into_iter().filter(|line| line.contains("/include/")));
            }
        }
    }
    assert!(found.is_empty(), "{}", found.join("\n"));
}
