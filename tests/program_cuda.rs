//! The program `cpkv` with CUDA, from outside: without a GPU, and on virtual ones.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test may panic")]

#[path = "support/program.rs"]
mod program;
#[path = "support/vgpu.rs"]
mod vgpu;

use std::path::PathBuf;
use std::process::Command;

use program::{Outcome, SAMPLE, cpkv, run};
use serde_json::Value;
use vgpu::{faults, library_path, on_virtual_gpu};

const STRATEGIES: [&str; 6] =
    ["per_span", "fused_all_reduce", "gather_compact", "symm_dense", "staging_publish", "staging_fill"];

/// Two small batches of the sample trace.
const SMALL: [&str; 13] = [
    "compose",
    "--trace",
    SAMPLE,
    "--model",
    "tiny",
    "--layers",
    "2",
    "--max-extend-tokens",
    "600",
    "--batches",
    "2",
    "--rounds",
    "0",
];

/// `command` where the driver is the stub: it starts, and knows no device.
fn without_gpu(command: &mut Command) -> &mut Command {
    let stub = std::env::var_os("CPKV_STUB_LIBCUDA").map(PathBuf::from);
    let stub =
        stub.expect("CPKV_STUB_LIBCUDA names the folder of the stub driver: scripts/setup writes .cpkv/env");
    assert!(stub.join("libcuda.so.1").exists(), "no libcuda.so.1 in {}", stub.display());
    command.env("LD_LIBRARY_PATH", library_path(&stub))
}

/// The one object a run printed, which ended well.
#[track_caller]
fn report_of(outcome: &Outcome) -> Value {
    assert_eq!(outcome.code, Some(0), "{outcome:?}");
    assert!(!outcome.stderr.contains("panicked"), "{outcome:?}");
    assert_eq!(faults(&outcome.stderr), [""; 0]);
    serde_json::from_str(&outcome.stdout).unwrap()
}

#[track_caller]
fn expect_exact(report: &Value) {
    let strategies = report["strategies"].as_array().unwrap();
    let names: Vec<_> = strategies.iter().map(|row| row["name"].as_str().unwrap()).collect();
    assert_eq!(names, STRATEGIES);
    assert!(strategies.iter().all(|row| row["exact"] == true), "{report}");
    assert!(report["new_tokens"].as_u64() > Some(0), "{report}");
}

#[test]
fn without_a_gpu_doctor_says_so_and_takes_the_cpu() {
    let outcome = run(without_gpu(&mut cpkv()).args(["doctor", "--ranks", "2"]));
    assert_eq!((outcome.code, &*outcome.stderr), (Some(0), ""), "{outcome:?}");
    let line = |name: &str| {
        let found = outcome.stdout.lines().find(|line| line.starts_with(name));
        found.unwrap_or_else(|| panic!("no {name}: {}", outcome.stdout))
    };
    assert!(line("CUDA").contains("finds no GPU") && line("CUDA").contains("nvidia-smi"), "{outcome:?}");
    assert!(line("device").contains(", since cuda: the driver finds no GPU"), "{outcome:?}");
    assert!(line("peer access").ends_with("yes"));
    let findings = report_of(&run(without_gpu(&mut cpkv()).args(["doctor", "--ranks", "2", "--json"])));
    let (device, reason) =
        (findings["device"].as_str().unwrap(), findings["device_reason"].as_str().unwrap());
    assert!(!device.contains("cuda") && reason.contains("NoDevice, 100"), "{findings}");
}

#[test]
fn without_a_gpu_auto_composes_on_the_cpu_with_the_reason_and_cuda_is_an_error() {
    let small = |more: &[&str]| run(without_gpu(&mut cpkv()).args(SMALL).args(["--ranks", "2"]).args(more));
    for device in ["auto", "cpu"] {
        let report = report_of(&small(&["--device", device, "--json"]));
        expect_exact(&report);
        assert_eq!(
            report["device_reason"].as_str().unwrap().contains("no GPU"),
            device == "auto",
            "{report}"
        );
        assert!(!report["device"].as_str().unwrap().contains("cuda"), "{report}");
    }
    let outcome = small(&["--device", "cuda"]);
    assert_eq!((outcome.code, &*outcome.stdout), (Some(2), ""), "{outcome:?}");
    assert!(outcome.stderr.contains("finds no GPU") && !outcome.stderr.contains("panicked"), "{outcome:?}");
}

#[test]
fn doctor_shows_the_gpus_and_that_they_reach_each_other() {
    for devices in ["1", "2"] {
        let doctor = |more: &[&str]| {
            let mut command = cpkv();
            on_virtual_gpu(&mut command).env("CPKV_VGPU_DEVICES", devices);
            run(command.args(["doctor", "--ranks", "2"]).args(more))
        };
        let findings = report_of(&doctor(&["--json"]));
        assert_eq!((&findings["peer_access"], &findings["device_reason"]), (&true.into(), &"".into()));
        assert_eq!(findings["strategy"], "staging_fill");
        assert!(findings["device"].as_str().unwrap().starts_with("cuda:0 ("), "{findings}");
        let cuda = findings["cuda"].as_str().unwrap();
        assert_eq!(
            (cuda.matches("GPU-").count().to_string(), cuda.contains("kernels by")),
            (devices.to_owned(), true)
        );
        let text = doctor(&[]);
        assert_eq!((text.code, &*text.stderr), (Some(0), ""), "{text:?}");
        assert!(
            text.stdout.contains("device         cuda:0 (") && text.stdout.contains("peer access    yes")
        );
    }
}

#[test]
fn gpus_without_access_to_each_other_are_told_and_everything_is_still_exact() {
    let on_two = |args: &[&str]| {
        let mut command = cpkv();
        let variables = [("CPKV_VGPU_DEVICES", "2"), ("CPKV_VGPU_FAULTS", "peer-lies")];
        run(on_virtual_gpu(&mut command).envs(variables).args(args).args(["--ranks", "2", "--json"]))
    };
    let findings = report_of(&on_two(&["doctor"]));
    assert_eq!(
        (&findings["peer_access"], &findings["strategy"]),
        (&false.into(), &"fused_all_reduce".into())
    );
    let reason = findings["reason"].as_str().unwrap();
    assert!(reason.contains("rank 0") && reason.contains("cuCtxEnablePeerAccess"), "{reason}");
    let report = report_of(&on_two(&[&SMALL[..], &["--strategy", "auto"]].concat()));
    let row = &report["strategies"][0];
    assert_eq!((&row["name"], &row["exact"]), (&"fused_all_reduce".into(), &true.into()), "{report}");
    assert!(report["stats"]["unreachable"].as_str().unwrap().contains("217"), "{report}");
}

#[test]
fn compose_as_threads_on_a_gpu_is_exact_with_every_strategy() {
    let mut command = cpkv();
    let args = ["--device", "cuda", "--ranks", "2", "--json"];
    let report = report_of(&run(on_virtual_gpu(&mut command).args(SMALL).args(args)));
    expect_exact(&report);
    assert_eq!((&report["transport"], &report["group_size"]), (&"threads".into(), &2.into()));
    assert!(report["device"].as_str().unwrap().starts_with("cuda:0 ("), "{report}");
    assert_eq!(report["device_reason"], "");
}

#[test]
fn a_gpu_that_fails_on_the_way_ends_the_program_with_the_error() {
    for (fault, words) in [
        ("module-fails", ["cuModuleLoadDataEx", "218"]),
        ("ecc=40", ["ECC_UNCORRECTABLE", "214"]),
        ("launch-fails=30", ["cuLaunchKernel", "701"]),
    ] {
        let mut command = cpkv();
        on_virtual_gpu(&mut command).env("CPKV_VGPU_FAULTS", fault);
        let outcome = run(command.args(SMALL).args(["--device", "cuda", "--ranks", "2"]));
        assert_eq!((outcome.code, &*outcome.stdout), (Some(1), ""), "{fault}: {outcome:?}");
        assert!(words.iter().all(|word| outcome.stderr.contains(word)), "{fault}: {outcome:?}");
        assert!(!outcome.stderr.contains("panicked"), "{fault}: {outcome:?}");
    }
}

#[cfg(feature = "mpi")]
mod under_mpirun {
    use std::ffi::OsString;
    use std::process::Command;

    use super::{SMALL, expect_exact, faults, on_virtual_gpu, report_of, run};
    use crate::program::cpkv_under_mpirun;

    #[test]
    fn compose_as_eight_processes_on_eight_gpus_is_exact_with_every_strategy() {
        let mut command = cpkv_under_mpirun(8);
        on_virtual_gpu(&mut command).env("CPKV_VGPU_DEVICES", "8");
        let report = report_of(&run(command.args(SMALL).args(["--device", "cuda", "--json"])));
        expect_exact(&report);
        assert_eq!((&report["transport"], &report["group_size"]), (&"processes".into(), &8.into()));
        assert_eq!(
            (&report["model"], &report["layers"], &report["batches"]),
            (&"tiny".into(), &2.into(), &2.into())
        );
        assert!(report["device"].as_str().unwrap().starts_with("cuda:0 ("), "{report}");
        assert_eq!((&report["device_reason"], &report["stats"]["num_fallbacks"]), (&"".into(), &0.into()));
        assert!(report["stats"]["unreachable"].is_null(), "{report}");
    }

    #[test]
    fn doctor_as_processes_shows_the_gpu_and_that_peers_reach_each_other() {
        let mut command = cpkv_under_mpirun(3);
        on_virtual_gpu(&mut command).env("CPKV_VGPU_DEVICES", "2");
        let findings = report_of(&run(command.args(["doctor", "--json"])));
        assert_eq!((&findings["ranks"], &findings["peer_access"]), (&3.into(), &true.into()), "{findings}");
    }

    /// Runs the ranks by a shell, which takes the GPU from rank 1; every rank ends by itself.
    fn without_gpu_on_rank_1(args: &[&str]) -> Command {
        const SCRIPT: &str =
            r#"if [ "$OMPI_COMM_WORLD_RANK" = 1 ]; then export CUDA_VISIBLE_DEVICES=; fi; exec "$@""#;
        let plain = cpkv_under_mpirun(3);
        let plain_args: Vec<_> = plain.get_args().map(OsString::from).collect();
        let (program, before) = plain_args.split_last().unwrap();
        let mut command = Command::new(plain.get_program());
        for (name, value) in plain.get_envs() {
            match value {
                Some(value) => command.env(name, value),
                None => command.env_remove(name),
            };
        }
        command.arg("--enable-recovery").args(before).args(["sh", "-c", SCRIPT, "sh"]).arg(program);
        on_virtual_gpu(&mut command).args(args);
        command
    }

    #[test]
    fn where_one_rank_has_no_gpu_all_take_the_cpu_and_say_which_it_was() {
        for args in [&[&SMALL[..], &["--device", "auto"]].concat()[..], &["doctor"]] {
            let outcome = run(without_gpu_on_rank_1(args).arg("--json"));
            let report = report_of(&outcome);
            assert_eq!(report["device"], "cpu", "{report}");
            let reason = report["device_reason"].as_str().unwrap();
            assert!(reason.contains("rank 1 has no GPU"), "{report}");
            assert_eq!(faults(&outcome.stderr), [""; 0]);
        }
    }
}
