//! With the feature `cuda`: compiles the GPU kernels to PTX, which a driver turns into the machine code of its own GPU.

use std::path::PathBuf;
use std::process::Command;

/// The oldest GPUs (Ampere) that the kernels run on; every newer one runs the same PTX.
const ARCHITECTURE: &str = "compute_80";

fn main() {
    println!("cargo::rerun-if-changed=src/cuda/encoder.cu");
    println!("cargo::rerun-if-env-changed=CUDA_HOME");
    if std::env::var_os("CARGO_FEATURE_CUDA").is_none() {
        return;
    }
    let toolkit = std::env::var_os("CUDA_HOME").map(PathBuf::from);
    let compiler = toolkit.map_or_else(|| PathBuf::from("nvcc"), |toolkit| toolkit.join("bin/nvcc"));
    let target = PathBuf::from(std::env::var_os("OUT_DIR").expect("cargo sets it")).join("encoder.ptx");
    let mut command = Command::new(&compiler);
    command.args(["-ptx", "-O3", "-std=c++17", "-arch", ARCHITECTURE, "-o"]).arg(&target).arg("src/cuda/encoder.cu");
    match command.status() {
        Ok(status) if status.success() => {}
        Ok(status) => panic!("{} failed with {status}", compiler.display()),
        Err(error) => panic!("{}: {error}; `make cuda` installs NVIDIA's compiler", compiler.display()),
    }
}
