//! Tests of the C++ headers, by the programs in `tests/cpp`. The requirements of the standard are listed here, each with a tag. A program
//! names the tag in a comment beside the test.

use std::path::PathBuf;
use std::process::Command;

#[path = "programs/headers.rs"]
mod headers;
mod programs;
#[path = "programs/run.rs"]
mod run;
#[path = "programs/sanitizing.rs"]
mod sanitizing;
use headers::*;
use programs::*;
use run::*;
use sanitizing::*;

/// The requirements of [saferecl.rcu] and [saferecl.hp], in our words.
const SENTENCES: &[(&str, &str)] = &[
    ("rcu.synopsis", "the header has these names, with these parameters, defaults and exceptions"),
    ("rcu.protectable", "T has exactly one base rcu_obj_base<T, D>, public and not virtual, and no other rcu_obj_base"),
    ("rcu.gen.nested", "an unlock corresponds to the last lock that has no unlock yet: regions nest"),
    ("rcu.gen.region", "a region begins with a lock and ends with the unlock that corresponds"),
    ("rcu.gen.order", "an evaluation that is scheduled after the beginning of a region runs after the end of the region, which happens before it"),
    ("rcu.gen.later", "regions that begin later hold nothing up"),
    ("rcu.gen.concurrent", "evaluations may run at the same time as anything else that is scheduled; each runs at most once"),
    ("rcu.base.synopsis", "retire is noexcept and has defaults; constructors, assignments and the destructor are protected and defaulted"),
    ("rcu.base.incomplete", "T may be incomplete until a member is referenced"),
    ("rcu.base.trivial", "the base copies as its deleter does: trivially if that is trivial"),
    ("rcu.base.copy", "a copy is a separate object"),
    ("rcu.base.deleter", "D is a function object type that can be called with a T*"),
    ("rcu.base.mandates", "retire is refused by the compiler if T is not protectable"),
    ("rcu.base.retire", "retire moves d into the object and schedules its call"),
    ("rcu.base.address", "the deleter is called with the address of the whole object"),
    ("rcu.domain.synopsis", "a domain is not copied; lock, try_lock and unlock do not throw"),
    ("rcu.domain.lockable", "a domain is Lockable: the standard's locks take it"),
    ("rcu.domain.try_lock", "try_lock is lock, and returns true"),
    ("rcu.domain.default", "there is one default domain"),
    ("rcu.threads", "any thread may lock at any time of its life; calls on the domain do not race"),
    ("rcu.sync", "rcu_synchronize blocks until the regions that were open are closed; what was done in them happens before its return"),
    ("rcu.barrier", "rcu_barrier blocks until what was scheduled before is evaluated, which happens before its return"),
    ("rcu.barrier.not_sync", "a barrier is not a synchronize: with nothing scheduled it waits for no region"),
    ("rcu.retire", "rcu_retire schedules d1(p) for any p, with d1 initialized from std::move(d)"),
    ("rcu.retire.mandates", "D is move-constructible and can be called with p, or the compiler refuses"),
    ("rcu.retire.throws", "rcu_retire throws what an allocation or the initialization of d1 throws, and schedules nothing then"),
    ("hp.synopsis", "the header has these names; swap does not throw"),
    ("hp.protectable", "T has exactly one base hazard_pointer_obj_base<T, D>, public and not virtual, and no other"),
    ("hp.gen.owner", "a hazard pointer is owned by at most one thread at a time, which may change"),
    ("hp.gen.protected", "an object is not reclaimed in an epoch that began before it was retired"),
    ("hp.gen.reclaim", "retired objects that are not protected are reclaimed by their deleters; their number has a bound (not met: see the header)"),
    ("hp.base.synopsis", "retire is noexcept and has a default; constructors, assignments and the destructor are protected and defaulted"),
    ("hp.base.incomplete", "T may be incomplete until a member is referenced"),
    ("hp.base.deleter", "D is default-constructible and move-assignable, and can be called with a T*"),
    ("hp.base.mandates", "retire is refused by the compiler if T is not protectable"),
    ("hp.base.retire", "retire move-assigns d to the deleter of the object, and retires it"),
    ("hp.base.retire.may", "retire may reclaim; deleters may use hazard pointers and retire"),
    ("hp.base.address", "the address that was protected is that of the whole object"),
    ("hp.class.synopsis", "the members of hazard_pointer, their exceptions; it is moved and not copied"),
    ("hp.ctor", "a hazard_pointer is empty by default"),
    ("hp.move", "a move transfers ownership and leaves its source empty"),
    ("hp.assign", "an assignment destroys what was owned, then takes ownership; a self-assignment does nothing; returns *this"),
    ("hp.dtor", "the destructor destroys the hazard pointer and ends its epoch"),
    ("hp.empty", "empty says whether nothing is owned; an unassociated hazard pointer is owned"),
    ("hp.protect", "protect loads until a try succeeds, and returns what it protects"),
    ("hp.protect.null", "a null pointer is protected trivially, and ends the previous epoch"),
    ("hp.try_protect", "a try associates and loads again; if the pointer differs, it returns that and protects nothing"),
    ("hp.try_protect.mandates", "T is protectable, or the compiler refuses"),
    ("hp.reset", "reset_protection(ptr) associates with *ptr and ends the previous epoch, even if it is the same object"),
    ("hp.reset.null", "reset_protection(nullptr) ends the epoch; it is the default"),
    ("hp.reset.null_pointer", "a null pointer of type T* is nullptr"),
    ("hp.reset.mandates", "T is protectable, or the compiler refuses"),
    ("hp.swap", "a swap exchanges ownership; no epoch ends or begins"),
    ("hp.swap.free", "swap(a, b) is a.swap(b)"),
    ("hp.make", "make_hazard_pointer returns the owner of a new, unassociated hazard pointer"),
    ("hp.many", "any number may exist"),
];

const STANDARDS: [&str; 3] = ["-std=c++17", "-std=c++20", "-std=c++2b"];

fn of_tests(name: &str) -> PathBuf {
    root().join("tests/cpp").join(name)
}

fn compilers() -> impl Iterator<Item = Compiler> {
    COMPILERS.into_iter().filter(|compiler| compiler.language == "c++" && compiler.is_there())
}

/// Runs a program with every installed compiler, in the oldest and the newest standard, and once without exceptions.
fn runs(name: &str) {
    let source = of_tests(name).with_extension("cc");
    for compiler in compilers() {
        let flags =
            [&["-O2", STANDARDS[0]][..], &["-O2", STANDARDS[2]], &["-O1", "-fno-exceptions", "-fno-rtti"]];
        for (number, flags) in flags.into_iter().enumerate() {
            compiled_and_run(compiler, &source, flags, &format!("{name}-{}-{number}", compiler.name));
        }
    }
}

#[test]
fn every_sentence_has_a_test() {
    let programs = std::fs::read_dir(root().join("tests/cpp")).unwrap();
    let text: String =
        programs.map(|program| std::fs::read_to_string(program.unwrap().path()).unwrap()).collect();
    let comments: Vec<&str> =
        text.lines().filter_map(|line| line.split_once("//")).map(|(_, comment)| comment).collect();
    let is_tag = |character: char| character.is_ascii_alphanumeric() || "._".contains(character);
    let named: Vec<&str> = comments
        .iter()
        .flat_map(|comment| comment.split(|character| !is_tag(character)))
        .map(|word| word.trim_end_matches('.'))
        .filter(|word| word.starts_with("rcu.") || word.starts_with("hp."))
        .collect();
    for (tag, words) in SENTENCES {
        assert!(named.contains(tag), "no test for {tag}: {words}");
    }
    for tag in named {
        let is_file = tag.ends_with(".hpp");
        assert!(
            is_file || SENTENCES.iter().any(|(known, _)| *known == tag),
            "a test names {tag}, which is not in SENTENCES"
        );
    }
}

#[test]
fn rcu_types() {
    runs("rcu_types");
}

#[test]
fn hazard_types() {
    runs("hazard_types");
}

#[test]
fn rcu() {
    runs("rcu");
}

#[test]
fn vouches() {
    runs("vouches");
}

#[test]
fn refused_fences() {
    runs("fences");
}

#[test]
fn hazard() {
    runs("hazard");
}

#[test]
fn stress() {
    runs("stress");
}

#[test]
fn worker() {
    let source = of_tests("worker.cc");
    for compiler in compilers() {
        compiled_and_run(compiler, &source, &["-O2", "-Wno-pedantic"], &format!("worker-{}", compiler.name));
    }
}

/// The programs run with each of the two libraries, because the constructor must be in both.
#[test]
fn forks_ends_and_hostile_programs() {
    for compiler in compilers() {
        for name in ["fork", "ends", "hostile"] {
            let source = of_tests(name).with_extension("cc");
            compiled_and_run(compiler, &source, &["-O2"], &format!("{name}-{}", compiler.name));
            runs_with_shared_library(compiler, name);
        }
    }
}

#[test]
fn checked_programs_find_misuse() {
    for compiler in compilers() {
        let source = of_tests("checked.cc");
        compiled_and_run(compiler, &source, &["-O2"], &format!("checked-{}", compiler.name));
        for name in ["rcu", "hazard"] {
            let (source, flags) = (of_tests(name).with_extension("cc"), ["-O2", "-DSTILL_CHECKED"]);
            compiled_and_run(compiler, &source, &flags, &format!("{name}-checked-{}", compiler.name));
        }
    }
}

#[test]
fn the_headers_open_with_a_program() {
    for header in ["stillpoint/rcu.hpp", "stillpoint/hazard_pointer.hpp"] {
        opens_with_a_program(header, "c++", 1);
    }
}

#[test]
fn the_examples_run() {
    for name in ["configuration", "stack"] {
        let source = root().join("examples").join(name).with_extension("cc");
        for compiler in compilers() {
            let program = format!("{name}-{}", compiler.name);
            println!("{}", compiled_and_run(compiler, &source, &["-O2", "-Wold-style-cast"], &program));
        }
    }
}

/// Each header compiles by itself, when it is included twice, and in two files of one program. This is tested in each standard, with more
/// warnings than elsewhere.
#[test]
fn the_headers_compile_by_themselves() {
    let more = [
        "-Wold-style-cast",
        "-Wnon-virtual-dtor",
        "-Wextra-semi",
        "-Woverloaded-virtual",
        "-Wundef",
        "-Wsign-conversion",
    ];
    for (number, compiler) in compilers().enumerate() {
        for header in ["rcu", "hazard_pointer"] {
            let source = place().join(format!("{header}-{number}.cc"));
            let line = format!("#include \"stillpoint/{header}.hpp\"\n");
            std::fs::write(&source, format!("{line}{line}")).unwrap();
            for standard in STANDARDS {
                for exceptions in ["-fexceptions", "-fno-exceptions"] {
                    let output = compiler
                        .command()
                        .args(more)
                        .args([standard, exceptions, "-fno-rtti", "-fsyntax-only"])
                        .arg(&source)
                        .output()
                        .unwrap();
                    assert!(
                        output.status.success(),
                        "{} {standard} {header}:\n{}",
                        compiler.name,
                        said(&output)
                    );
                }
            }
        }
    }
}

/// The compiler refuses what the standard requires it to refuse, with a message that gives the reason.
#[test]
fn what_is_mandated_is_checked() {
    let words = [
        "",
        "T must have one base rcu_obj_base",
        "D must be move-constructible",
        "d(p) must be well-formed",
        "T must have one base hazard_pointer_obj_base",
        "T must have one base hazard_pointer_obj_base",
        "T must have one base hazard_pointer_obj_base",
        "T must have one base hazard_pointer_obj_base",
        "deleted",
        "private",
        "T must have one base rcu_obj_base",
    ];
    let source = of_tests("refused.cc");
    for compiler in compilers() {
        for (case, words) in words.into_iter().enumerate() {
            let output = compiler
                .command()
                .args([format!("-DCASE={case}"), "-fsyntax-only".to_owned(), "-Wno-unused".to_owned()])
                .arg(&source)
                .output()
                .unwrap();
            let is_expected = output.status.success() == words.is_empty() && said(&output).contains(words);
            assert!(is_expected, "{} {case}:\n{}", compiler.name, said(&output));
        }
    }
}

/// AddressSanitizer and UndefinedBehaviorSanitizer check what the programs do with their objects.
#[test]
fn sanitizers_find_nothing() {
    let compiler = COMPILERS[1];
    if !compiler.is_there() {
        return;
    }
    let flags = ["-O1", "-g", "-fsanitize=address,undefined", "-fno-sanitize-recover=all", "-DROUNDS=5000"];
    for name in ["rcu", "hazard", "stress"] {
        compiled_and_run(compiler, &of_tests(name).with_extension("cc"), &flags, &format!("{name}-asan"));
    }
}

/// ThreadSanitizer reports wrong programs, and no correct ones, although the library is not compiled for it.
#[test]
fn thread_sanitizer_tells_right_from_wrong() {
    for compiler in sanitizing().filter(|compiler| compiler.language == "c++") {
        let flags = ["-O1", "-g", "-fsanitize=thread"];
        for name in ["configuration", "stack"] {
            let source = root().join("examples").join(name).with_extension("cc");
            compiled_and_run(compiler, &source, &flags, &format!("{name}-{}-tsan", compiler.name));
        }
        let front = of_tests("symmetric.hpp");
        let full = [&flags[..], &["-include", front.to_str().unwrap()]].concat();
        let source = of_tests("tsan.cc");
        let program = compiled(compiler, &source, &full, &format!("tsan-{}-full", compiler.name));
        let output = Command::new(&program).arg("0").output().unwrap();
        assert!(output.status.success(), "{}, full fences:\n{}", compiler.name, said(&output));
        let program = compiled(compiler, &source, &flags, &format!("tsan-{}", compiler.name));
        let output = Command::new(&program).arg("0").output().unwrap();
        assert!(output.status.success(), "{}:\n{}", compiler.name, said(&output));
        for defect in 1..=2 {
            let output = Command::new(&program).arg(defect.to_string()).output().unwrap();
            assert!(
                !output.status.success() && said(&output).contains("data race"),
                "{}, defect {defect}, is not found: {}\n{}",
                compiler.name,
                output.status,
                said(&output)
            );
        }
    }
}

/// Where the kernel refuses membarrier, readers issue full fences.
#[test]
fn programs_run_without_membarrier() {
    let front = of_tests("symmetric.hpp");
    for compiler in compilers() {
        for name in ["rcu", "hazard", "stress"] {
            let flags = ["-O2", "-include", front.to_str().unwrap()];
            compiled_and_run(
                compiler,
                &of_tests(name).with_extension("cc"),
                &flags,
                &format!("{name}-{}-full", compiler.name),
            );
        }
    }
}

fn runs_with_shared_library(compiler: Compiler, name: &str) {
    let program = place().join(format!("{name}-shared-{}", compiler.name));
    let lib = prefix().join("lib");
    let output = compiler
        .command()
        .arg("-O2")
        .arg(of_tests(name).with_extension("cc"))
        .args(["-x", "none", "-L"])
        .arg(&lib)
        .args(["-lstillpoint", "-o"])
        .arg(&program)
        .output()
        .unwrap();
    assert!(output.status.success(), "{}", said(&output));
    let output = Command::new(&program).env("LD_LIBRARY_PATH", &lib).output().unwrap();
    assert!(output.status.success(), "{}: {}", output.status, said(&output));
}

/// Programs and the shared library use the same thread-local variable.
#[test]
fn programs_link_the_shared_library() {
    for compiler in compilers() {
        for name in ["rcu", "hazard"] {
            runs_with_shared_library(compiler, name);
        }
    }
}

/// Broken headers: a header, a line of it, its replacement, and the program that must fail.
const BROKEN: &[(&str, &str, &str, &str)] = &[
    // Without the second load. The yield makes the critical time longer.
    (
        "stillpoint/hazard_pointer.hpp",
        "        reset_protection(old);\n        // Acquire: pairs with the release that linked the object.\n        ptr = src.load(std::memory_order_acquire);\n",
        "        sched_yield();\n        reset_protection(old);\n        static_cast<void>(src);\n",
        "stress",
    ),
    ("stillpoint/hazard_pointer.hpp", "        if (old == ptr)\n            return true;\n", "        return true;\n", "hazard"),
    ("stillpoint/hazard_pointer.hpp", "        vouch();\n", "", "vouches"),
    ("stillpoint/rcu.hpp", "token | STILL_RCU_IDLE_, __ATOMIC_RELEASE)", "token & 0, __ATOMIC_RELEASE)", "vouches"),
    ("stillpoint/reclamation.h", "(state - 1) < -2;", "(state) < -1;", "vouches"),
    ("stillpoint/reclamation.h", "(state - 1) < -2;", "(state) < 0;", "vouches"),
    ("stillpoint/hazard_pointer.hpp", "{ set(nullptr); }", "{}", "hazard"),
    ("stillpoint/hazard_pointer.hpp", " : hazard_(other.hazard_) { other.hazard_ = {}; }", " : hazard_(other.hazard_) {}", "hazard"),
    ("stillpoint/hazard_pointer.hpp", "        if (this != &other) {\n", "        {\n", "hazard"),
    ("stillpoint/hazard_pointer.hpp", "static_cast<T *>(this), &still_reclaim_", "this, &still_reclaim_", "hazard"),
    ("stillpoint/hazard_pointer.hpp", "        if (empty()) {\n", "        if (false) {\n", "checked"),
    ("stillpoint/rcu.hpp", "            ++self.nested;\n", "", "rcu"),
    ("stillpoint/rcu.hpp", "__atomic_load_n(self.token, __ATOMIC_ACQUIRE), __ATOMIC_RELEASE)", "uint64_t{0}, __ATOMIC_RELEASE)", "rcu"),
    ("stillpoint/reclamation.h", "            must_be_outside(\"an object was assigned to after it was retired\");\n", "            static_cast<void>(other);\n", "checked"),
    ("stillpoint/reclamation.h", "    node.words.at[1] = nullptr;\n", "", "checked"),
    ("stillpoint/rcu.hpp", "        detail::begin_retirement(still_retirable_);\n", "", "checked"),
    ("stillpoint/reclamation.h", "        D moved(std::move(deleter));\n        moved(object);\n", "        deleter(object);\n", "rcu"),
];

/// The header with only the yield, which breaks nothing.
const SLOW: (&str, &str, &str, &str) = (
    "stillpoint/hazard_pointer.hpp",
    "        reset_protection(old);\n",
    "        sched_yield();\n        reset_protection(old);\n",
    "stress",
);

/// Under AddressSanitizer, each broken header makes its program fail in one of several runs. This shows that the programs can fail.
#[test]
fn broken_headers_are_found_out() {
    let compiler = COMPILERS[1];
    if !compiler.is_there() {
        return;
    }
    for (number, &(header, from, to, program)) in BROKEN.iter().chain([&SLOW]).enumerate() {
        let source = of_tests(program).with_extension("cc");
        let built = with_broken_header(compiler, (header, from, to), &source, number);
        if number == BROKEN.len() {
            assert!(within(&built, 60), "{header} with `{to}` in place of `{from}` does not pass");
            continue;
        }
        let is_found_out = (0..40).any(|_| !within(&built, 60));
        assert!(is_found_out, "{header} with `{to}` in place of `{from}` passes");
    }
}
